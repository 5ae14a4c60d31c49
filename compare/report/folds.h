#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// Describes a set of numbers: "0-3,7,9"; "*" if it has more than `most` runs.
std::string runs(const std::set<int>& numbers, std::size_t most);

/// Similar findings of several layers, experts and micro-batches, folded into one line.
struct Fold {
  /// The common name: "layers.3-59.moe.router grad weight (step 0, backward)", or only the module.
  std::string name;
  Verdict verdict = Verdict::failed;
  std::int64_t count = 0;
  double ratio = 0, required = 0;  ///< the largest
  std::string reason;              ///< the reason of the first finding
};
/// Folds the findings that did not pass, were not ignored and do not follow from another failure. The worst
/// kinds of verdict come first, each in execution order. If that takes too many lines, tensors fold by module
/// and then up the module tree; no kind of verdict is left out.
std::vector<Fold> folds(const Report&, std::size_t most_lines);

}  // namespace assay
