#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace assay {

/// Puts elements of `size` bytes each into the other byte order. Bytes behind the last whole element stay as
/// they are.
void swap_bytes(std::span<std::byte> bytes, std::size_t size);
std::vector<std::byte> byte_swapped(std::vector<std::byte> bytes, std::size_t size);

}  // namespace assay
