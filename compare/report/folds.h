#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// Which numbers, in a few words: "0-3,7,9"; "*" if there are more than `most` such runs.
std::string runs(const std::set<int>& numbers, std::size_t most);

/// Findings that are alike: layers, experts and micro-batches fold into one line.
struct Fold {
  /// What they share: "layers.3-59.moe.router grad weight (step 0, backward)", or only the module.
  std::string name;
  Verdict verdict = Verdict::failed;
  std::int64_t count = 0;
  double ratio = 0, required = 0;  ///< the largest
  std::string reason;              ///< of the first
};
/// Of what neither passed nor was ignored, nor follows from another failure: the worst kinds of verdict
/// first, each in execution order. Where that takes more lines, tensors fold by module and then up the module
/// tree; no kind of verdict is left out for it.
std::vector<Fold> folds(const Report&, std::size_t most_lines);

}  // namespace assay
