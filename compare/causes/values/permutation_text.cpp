#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/slice_matching.h"

namespace assay {
namespace {

using Source = std::vector<std::int64_t>;

// Blocks of `size` slices that stay together: which block of the reference each is; empty if they do not.
Source blocks_of(const Source& source, std::int64_t size) {
  Source blocks;
  const auto step = static_cast<std::size_t>(size);
  for (std::size_t begin = 0; begin < source.size(); begin += step) {
    if (source[begin] % size != 0) return {};
    for (std::size_t i = 1; i < step; ++i) {
      if (source[begin + i] != source[begin] + static_cast<std::int64_t>(i)) return {};
    }
    blocks.push_back(source[begin] / size);
  }
  return blocks;
}

std::vector<std::size_t> moved_of(const Source& source) {
  std::vector<std::size_t> moved;
  for (std::size_t j = 0; j < source.size(); ++j) {
    if (source[j] != static_cast<std::int64_t>(j)) moved.push_back(j);
  }
  return moved;
}

}  // namespace

PermutationText describe_permutation(const SliceMatch& match, const std::string& one,
                                     const std::string& many) {
  const Source& source = match.source;
  const auto n = static_cast<std::int64_t>(source.size());
  const double bits_of_index = std::log2(static_cast<double>(n));
  const std::vector<std::size_t> moved = moved_of(source);
  if (moved.size() == 2 && match.bijective) {
    return {fmt::format("{} {} and {} are swapped", many, moved[0], moved[1]), 2 * bits_of_index};
  }
  if (moved.size() == 1) {
    return {fmt::format("{} {} holds the reference's {} {}", one, moved[0], one, source[moved[0]]),
            2 * bits_of_index};
  }
  for (std::int64_t count = 2; count * 2 <= n && count <= 64; ++count) {
    if (n % count != 0) continue;
    const Source blocks = blocks_of(source, n / count);
    if (blocks.empty()) continue;
    const double bits =
        static_cast<double>(moved_of(blocks).size() + 1) * std::log2(static_cast<double>(count)) + 6;
    const std::string order = fmt::format("{} blocks of {} {} hold the reference's {}", count, n / count,
                                          many, fmt::join(blocks, " "));
    return {order, bits};
  }
  constexpr std::int64_t listed = 16;
  if (n <= listed) {
    const double bits = static_cast<double>(moved.size()) * bits_of_index;
    return {fmt::format("{} {} hold the reference's {}", n, many, fmt::join(source, " ")), bits};
  }
  std::string text = fmt::format("{} of {} {} are {}", moved.size(), n, many,
                                 match.bijective ? "permuted" : "other ones, some of them repeated");
  for (std::size_t i = 0; i < std::min<std::size_t>(4, moved.size()); ++i) {
    text +=
        fmt::format("{} {} holds the reference's {}", i == 0 ? ": index" : ",", moved[i], source[moved[i]]);
  }
  return {text + (moved.size() > 4 ? ", .." : ""), static_cast<double>(moved.size()) * bits_of_index};
}

}  // namespace assay
