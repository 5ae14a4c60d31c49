#pragma once

#include <filesystem>

#include "assay/golden/tensor.h"

namespace assay {

/// Writes a .npy file, version 1. bf16, fp8, tf32 and hf32, which numpy cannot name, are stored as their bits
/// (uint16, uint8, float32). The file appears whole or not at all. Throws Error that names it if it cannot be
/// written.
void write_npy(const std::filesystem::path&, const Tensor&);

}  // namespace assay
