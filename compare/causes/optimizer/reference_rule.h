#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/compare/causes/optimizer/gradient_norm.h"
#include "assay/compare/causes/optimizer/step_call.h"

namespace assay {

/// What torch.nn.utils.clip_grad_norm_ adds to the norm, and MindFormers does not.
inline constexpr double clip_epsilon = 1e-6;

/// clip = min(1, max_norm / (norm + epsilon)).
struct ClipLimit {
  double max_norm = 0;  ///< infinite: it never clips; 0: not known
  double epsilon = clip_epsilon;
  bool is_known() const { return max_norm > 0; }
  bool is_finite() const { return is_known() && std::isfinite(max_norm); }
  double of(double norm) const { return max_norm / (norm + epsilon); }
  /// How far a program's own coefficient may be off, relative, by its rounding and by that of the norm.
  double error(double norm, double norm_error, DType arithmetic) const;
};

/// A coefficient that was fitted, as a program has it that stores it in the dtype of its gradients, if it may
/// be such a number.
Estimate as_stored(const Estimate& coefficient, const StepTensors&);

/// Attributes, by name.
using StepForm = std::map<std::string, AttributeValue>;

/// The rules that the recording of the reference shows: those that make its steps of its own inputs, within
/// the bound. A parameter without one is not judged.
struct ReferenceRules {
  std::map<std::pair<std::string, std::int64_t>, StepRule> of;  ///< by parameter and step
  ClipLimit limit;

  const StepRule* find(const ParameterStep& s) const {
    const auto at = of.find({s.name(), s.step});
    return at == of.end() ? nullptr : &at->second;
  }
};

/// @param norms  of the reference's gradients, by step: recorded, else computed, with its error
struct KnownNorm {
  double value = 0, error = 0;  ///< the error is relative
};
ReferenceRules reference_rules(const RecordedSteps&, const std::map<std::int64_t, KnownNorm>& norms);

/// The forms that a result of an operator has in the world: combinations of what was seen, the default first.
std::vector<StepForm> forms_in(const Operator&, const StepTensors&, std::size_t result);

}  // namespace assay
