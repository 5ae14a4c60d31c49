#pragma once

#include <cstddef>
#include <vector>

namespace assay {

/// Elements of `size` bytes each, in the other byte order. Bytes behind the last whole element stay as they
/// are.
std::vector<std::byte> byte_swapped(std::vector<std::byte> bytes, std::size_t size);

}  // namespace assay
