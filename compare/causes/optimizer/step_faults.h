#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/reference_rule.h"

namespace assay {

/// A gradient that a program may have used by mistake.
struct OtherGradient {
  TensorSource tensor;
  std::string text;  ///< "its gradient of the step before", "the share of rank 1 alone"
};

/// The reference's rule with other numbers: what all parameters of a run may have instead.
struct AlternativeRule {
  AdamRule rule;
  std::int64_t steps = 0;  ///< added to t
  double lr = 1;           ///< times the learning rate

  UpdateForm update_form(const ReferenceRule&, const ParameterStep&) const;
};

/// What was done instead of the reference's step, verified on every element.
struct StepFault {
  std::string kind;  ///< Diagnosis::kind
  std::string key;   ///< the same for one mistake at several steps and parameters
  std::string text;  ///< with the numbers of this step
  double residual = 0;
  double clip = 0;                                  ///< of kind "clip": the coefficient that was used
  double decay = 0, reference_decay = 0;            ///< of kinds "weight_decay" and "l2_decay"
  std::optional<AlternativeRule> alternative = {};  ///< where it is one
};

/// One result of a step on the actual side.
struct JudgedStage {
  bool known = false;  ///< judged: the reference's own was reproduced
  /// Where it is not the reference's, too.
  bool is_wrong() const { return known && !errors.holds(); }
  StepErrors errors;  ///< of the reference's step on the actual side's own inputs
  std::optional<StepFault> fault;
  std::optional<StepFault> also;  ///< a second mistake in the same result: another decay
};
struct JudgedStep {
  JudgedStage first, second, update;
};

/// Takes the reference's step on what the actual side recorded before it, and finds what was done where the
/// result is another.
/// @param clip    the coefficient that this side should have used
/// @param others  asked where neither gradient nor parameter explain the moments
JudgedStep judge_step(const ParameterStep&, const ReferenceRule&, double clip,
                      const std::vector<OtherGradient>& others);

}  // namespace assay
