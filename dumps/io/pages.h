#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace assay {

/// Fresh memory of zeros. Unlike a vector's it is touched by whoever writes it first, so that threads share
/// that cost, which is as high as that of a copy.
struct Pages {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};
/// Throws Error ("<where>: needs <size> bytes ..") if the memory is not there.
Pages allocate_pages(std::uint64_t size, std::string_view where);

}  // namespace assay
