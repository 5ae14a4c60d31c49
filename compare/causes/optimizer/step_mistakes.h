#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/step_hypotheses.h"
#include "assay/compare/causes/values/elements.h"
#include "assay/compare/result/cause.h"

namespace assay {

/// A mistake in a step, verified on every element.
struct StepFault {
  Cause cause = Cause::step_stale;
  std::string key;   ///< equal for the same mistake at several steps and parameters
  std::string text;  ///< a sentence with the numbers of this step
  double residual = 0;
  std::optional<double> value = {}, reference = {};  ///< the used number and the right one
  std::optional<double> evidence = {};               ///< bits, where they are less than a proof
  CauseParameters parameters = {};                   ///< of Cause::attribute
};

/// One result of a step on the actual side.
struct JudgedResult {
  StepErrors errors;     ///< against the reference's rule on the actual side's own inputs
  bool known = false;    ///< whether it is judged: the reference's own result was reproduced
  bool follows = false;  ///< right but for what is wrong with the states of this step
  std::vector<StepFault> faults;
};

/// Judges the steps of one side, those of one step one after the other: what one parameter shows is tried
/// first on the next.
class StepMistakes {
 public:
  /// @param right   the reference's rule with this side's right clipping coefficient
  /// @param others  gradients to try
  std::vector<JudgedResult> judge(const ParameterStep&, const StepRule& right, const StepRule& reference,
                                  const std::vector<OtherGradient>& others);

 private:
  std::map<std::pair<std::int64_t, const Operator*>, std::vector<StepChange>> known_;  ///< by step
  std::map<std::int64_t, std::size_t> unexplained_;  ///< by step: searches that found nothing
  friend class StepSearch;                           // step_mistakes.cpp
};

}  // namespace assay
