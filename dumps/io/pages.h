#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace assay {

/// Fresh memory of zeros. Unlike the memory of a vector, each page is touched first by the thread that writes
/// it first, so that threads share that cost, which is as high as the cost of a copy.
struct Pages {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};
/// Throws Error ("<where>: needs <size> bytes ..") if the memory is not there.
Pages allocate_pages(std::uint64_t size, std::string_view where);

}  // namespace assay
