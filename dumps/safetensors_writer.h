#pragma once

#include <filesystem>
#include <span>

#include "assay/dumps/record/plain_tensor.h"

namespace assay {

/// Writes a new safetensors file, which appears whole or not at all. tf32 and hf32, which the format cannot
/// name, become float32. The header lists the tensors in the given order; their data is sorted by element
/// size, which keeps it aligned. Throws Error that names the file if it exists or cannot be written.
void write_safetensors(const std::filesystem::path&, std::span<const PlainTensor>);

}  // namespace assay
