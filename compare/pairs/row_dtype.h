#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"

namespace assay {

/// The dtype whose table rows judge a pair. The rounding of a narrow dtype stays in everything computed from
/// it, in any dtype. End to end, the rows of the coarsest dtype that either side has used so far apply. But
/// if most tensors of a phase and slot have the same dtype on both sides, a different dtype in a few of them
/// is no intended precision: it relaxes nothing.
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
