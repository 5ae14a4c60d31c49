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

/// The rule of the reference with other numbers, which all parameters of a run may share.
struct AlternativeRule {
  AdamRule rule;
  std::int64_t steps = 0;  ///< added to t
  double lr = 1;           ///< times the learning rate

  UpdateForm update_form(const ReferenceRule&, const ParameterStep&) const;
};

/// A mistake in a step, verified on every element.
struct StepFault {
  Cause cause = Cause::step_stale;
  std::string key;   ///< equal for the same mistake at several steps and parameters
  std::string text;  ///< a sentence with the numbers of this step
  double residual = 0;
  /// A clipping coefficient, decay, beta, epsilon, learning rate, norm or step: the used one and the right
  /// one.
  std::optional<double> value = {}, reference = {};
  std::optional<AlternativeRule> alternative = {};  ///< if the mistake is another rule
};

/// One result of a step on the actual side.
struct JudgedStage {
  bool known = false;  ///< whether it is judged: the reference's own result was reproduced
  /// Whether it is judged and differs from the step of the reference.
  bool is_wrong() const { return known && !errors.holds(); }
  StepErrors errors;  ///< against the reference's step on the actual side's own inputs
  std::optional<StepFault> fault;
  std::optional<StepFault> also;  ///< a second mistake in the same result: another decay
};
struct JudgedStep {
  JudgedStage first, second, update;
};

/// Takes the step of the reference on the recorded inputs of the actual side, and finds the mistake if the
/// result differs.
/// @param clip    the right clipping coefficient of this side
/// @param others  gradients to try if neither gradient nor parameter explain the moments
JudgedStep judge_step(const ParameterStep&, const ReferenceRule&, double clip,
                      const std::vector<OtherGradient>& others);

}  // namespace assay
