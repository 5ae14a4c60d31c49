#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace assay {

/// One parser, fed with bytes that anyone may have written. It may throw Error and nothing else, and must end
/// soon with little memory.
struct FuzzTarget {
  std::string_view name;
  void (*run)(std::span<const std::byte>);
  std::vector<std::string_view> seeds;  ///< files below tests/data that it reads
};

const std::vector<FuzzTarget>& fuzz_targets();

}  // namespace assay
