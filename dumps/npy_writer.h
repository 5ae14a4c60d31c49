#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "assay/dumps/record/plain_tensor.h"
#include "assay/golden/tensor.h"

namespace assay {

/// Writes a .npy file, version 1, which appears whole or not at all. bf16, fp8, tf32 and hf32, which numpy
/// cannot name, are stored as bits (uint16, uint8, float32). Throws Error that names the file if it cannot be
/// written.
void write_npy(const std::filesystem::path&, const Tensor&);

/// The numpy types for dtypes that numpy cannot name.
enum class NpyTypes : std::uint8_t {
  bits,       ///< unsigned integers
  ml_dtypes,  ///< those of np.save for an ml_dtypes array: V2 for bfloat16, V1 for float8_e4m3fn, f1 for
              ///< float8_e5m2
};
void write_npy(const std::filesystem::path&, const Tensor&, NpyTypes);

/// Writes a new .npy file, which appears whole or not at all. The name of the file replaces that of the
/// tensor.
void write_npy_file(const std::filesystem::path&, const PlainTensor&);

/// Writes a new folder of .npy files, which appears whole or not at all; a '/' in a name makes a folder. The
/// types are those of NpyTypes::ml_dtypes. Throws Error that names the folder if it exists, a name does not
/// fit, or it cannot be written.
void write_npy_folder(const std::filesystem::path&, std::span<const PlainTensor>);

}  // namespace assay
