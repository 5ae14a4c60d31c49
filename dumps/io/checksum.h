#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "assay/golden/tensor_source.h"

namespace assay {

/// Hexadecimal.
std::string sha256(std::span<const std::byte>);
/// Of a tensor's little-endian elements in C order.
std::string sha256(const TensorSource&);

/// Of a Record::checksum what stands before the colon: "sha256", "crc32", "crc32(float32)", "md5", "xor".
std::string_view checksum_kind(std::string_view checksum);
/// Whether the tensor has this checksum; nothing where that cannot be said: a kind that is not known.
/// bfloat16 may have been widened to float32 before, as some recorders do.
std::optional<bool> has_checksum(const TensorSource&, std::string_view checksum);

}  // namespace assay
