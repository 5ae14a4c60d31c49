#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"

namespace assay {

/// The size that a file may claim to unpack to: any size up to max_claim, and beyond it max_expansion times
/// its stored bytes. Deflate reaches at most 1032, and only for zeros.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
inline constexpr std::uint64_t max_claim = std::uint64_t{16} << 20;  // zeros take time
#else
inline constexpr std::uint64_t max_claim = std::uint64_t{4} << 30;
#endif
inline constexpr std::uint64_t max_expansion = 1000;

/// Throws Error ("<where>: ...") if `claimed` bytes are more than `stored` ones may stand for.
void check_claim(std::uint64_t claimed, std::uint64_t stored, std::string_view where);

/// Returns the result of `work`. Throws Error ("<where>: needs <bytes> ..") if it runs out of memory: sizes
/// come from files, and a sparse file can have any size.
template <class Work>
auto within_memory(std::uint64_t bytes, std::string_view where, Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw Error("{}: needs {} bytes, more than there is memory", where, bytes);
}

/// Zeros, as many as a file claims and check_claim believes. Throws Error if the memory is not there.
std::vector<std::byte> allocate_claim(std::uint64_t claimed, std::uint64_t stored, std::string_view where);

}  // namespace assay
