#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"

namespace assay {

/// By whose rows a pair is judged. Rounding made by a narrow dtype stays in everything computed from it,
/// whatever dtype it is stored in: end to end, by those of the coarsest dtype that either side has used so
/// far. But where most tensors of a phase and slot have one dtype on both sides, another in a few of them is
/// no precision that the run was meant to have: it relaxes nothing.
class RowDType {
 public:
  explicit RowDType(const std::vector<Pair>&);
  /// The dtypes differ where those of most such pairs do not.
  bool deviates(const Pair&) const;
  void see(const Pair&);
  /// Dtypes for which the policy has no rows cannot relax it.
  void apply(Expectation&, DType own) const;

 private:
  using Kind = std::pair<Phase, std::string>;
  std::map<Kind, std::int64_t> excess_;  ///< of pairs of one dtype over those of two
  std::map<DType, std::string> first_;   ///< the first tensor of each dtype
};

/// "bfloat16 against float32, while ..": of a pair that deviates.
std::string deviation_text(const Pair&);
/// Counts the pairs of the report that deviate, and names the first.
/// @param pairs  of its findings, for as many as there are
void note_deviations(Report&, const std::vector<Pair>& pairs, const RowDType&);

}  // namespace assay
