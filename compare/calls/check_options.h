#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/rules/policy.h"
#include "assay/golden/log.h"
#include "assay/operators/engine/golden.h"

namespace assay {

struct CheckOptions {
  std::vector<Policy> policies;  ///< the first decides; the others are reported beside it
  Level level = Level::fp64;
  std::string accumulator;            ///< how the device adds (parse_accumulator); "": float32, any order
  std::optional<DType> intermediate;  ///< the dtype in which the device keeps intermediate results
  /// Also fails a common factor beyond what roundings make where results between steps are kept narrow, which
  /// all elements may share.
  bool whole = false;
  bool causes = true;  ///< also says what makes a failing output
  bool prove = false;  ///< also injects faults, each of which must be rejected (prove.h)
  /// The outputs to judge, in any readable format, named like the outputs of the case or like their files.
  /// Several cases have one folder each below it. Nothing: the outputs in the case itself.
  std::optional<std::filesystem::path> actual;
  std::optional<DType> dtype_hint;  ///< the dtype of arrays below `actual`, where the file cannot name it
  std::string only;                 ///< glob over finding names; empty: all
  int threads = 1;
  int error_maps = 0;  ///< the first so many findings that do not pass get a Finding::error_map
  /// Further options of the command in Finding::repeat, with a leading space.
  std::string repeat;
  Log log;  ///< counts at info, every output at trace
  /// `done` and `total` count cases.
  std::function<void(std::size_t done, std::size_t total, const std::string& name)> progress;
};

}  // namespace assay
