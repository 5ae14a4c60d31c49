#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/operators/engine/golden.h"

namespace assay {

struct CheckOptions {
  std::vector<Policy> policies;  ///< the first decides, the others are reported beside it
  Level level = Level::fp64;
  std::string accumulator;            ///< how the device adds (parse_accumulator); "": float32, any order
  std::optional<DType> intermediate;  ///< in which the device keeps intermediate results
  bool prove = false;                 ///< inject faults too: each must be rejected (prove.h)
  /// Where the outputs to judge lie, in any readable format, named like the case's outputs or their files;
  /// with several cases, one folder per case below it. Nothing: the case's own outputs.
  std::optional<std::filesystem::path> actual;
  std::optional<DType> dtype_hint;  ///< for arrays below `actual` whose file cannot say it
  std::string only;                 ///< glob over finding names; empty: all
  int threads = 1;
  int error_maps = 0;  ///< Finding::error_map for so many that do not pass, the first ones
  /// The options that the command of Finding::repeat needs besides these, with a leading space.
  std::string repeat;
  /// In cases.
  std::function<void(std::size_t done, std::size_t total, const std::string& name)> progress;
};

}  // namespace assay
