#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "assay/golden/tensor_source.h"

namespace assay {

/// Returns the hexadecimal SHA-256 of bytes.
std::string sha256(std::span<const std::byte>);
/// Returns the SHA-256 of the little-endian elements of a tensor in C order.
std::string sha256(const TensorSource&);

/// Returns the part of a Record::checksum before the colon: "sha256", "crc32", "crc32(float32)", "md5",
/// "xor",
/// "fingerprint".
std::string_view checksum_kind(std::string_view checksum);
/// Returns whether the tensor has this checksum; nothing for a kind that is not known. Some recorders widen
/// bfloat16 to float32 first.
std::optional<bool> has_checksum(const TensorSource&, std::string_view checksum);

}  // namespace assay
