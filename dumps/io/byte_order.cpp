#include "assay/dumps/io/byte_order.h"

#include <algorithm>

namespace assay {

void swap_bytes(std::span<std::byte> bytes, std::size_t size) {
  for (auto at = bytes.begin(); static_cast<std::size_t>(bytes.end() - at) >= size;) {
    const auto next = at + static_cast<std::ptrdiff_t>(size);
    std::reverse(at, next);
    at = next;
  }
}

std::vector<std::byte> byte_swapped(std::vector<std::byte> bytes, std::size_t size) {
  swap_bytes(bytes, size);
  return bytes;
}

}  // namespace assay
