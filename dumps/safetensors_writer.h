#pragma once

#include <filesystem>
#include <span>

#include "assay/dumps/record/plain_tensor.h"

namespace assay {

/// Whether it becomes F4: float4_e2m1fn, two in a byte. The format has no half a byte, so that an odd number
/// of them becomes U8, one in each.
bool is_packed_in_safetensors(const PlainTensor&);

/// Writes a new safetensors file, which appears whole or not at all. tf32 and hf32, which the format cannot
/// name, become float32. The header lists the tensors in the given order; their data is sorted by element
/// size, which keeps it aligned. Throws Error that names the file if it exists or cannot be written.
void write_safetensors(const std::filesystem::path&, std::span<const PlainTensor>);

}  // namespace assay
