#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "assay/compare/causes/optimizer/adam_rule.h"

namespace assay {

/// The optimizer rule that the recording of the reference shows. It lists the parameters and stages that the
/// rule reproduces within rounding; the others are not judged.
struct ReferenceRule {
  AdamRule rule;
  /// Other rules that reproduce the recording equally well: rounding hides the difference between them.
  std::vector<AdamRule> equivalent_rules;
  std::int64_t before_first = 0;        ///< t of a step is the number of the step minus this
  double max_norm = 0;                  ///< inf: it never clipped; 0: the norm of clipping is not known
  double clip_epsilon = 1e-6;           ///< clip = max_norm / (norm + clip_epsilon)
  std::map<std::int64_t, double> clip;  ///< coefficient of each step
  std::map<std::int64_t, double> lr;    ///< of each step
  std::map<std::string, double> decay;  ///< decoupled, by parameter
  std::map<std::string, double> l2;     ///< or added to the gradient
  enum class Stage : std::uint8_t { first, second, update };
  std::set<std::tuple<std::string, std::int64_t, Stage>> reproduced;

  std::int64_t t(std::int64_t step) const { return step - before_first; }
  bool reproduces(const ParameterStep& s, Stage stage) const {
    return reproduced.contains({s.name(), s.step, stage});
  }
  double decay_of(const std::string& name) const;
  double l2_of(const std::string& name) const;
  UpdateForm update_form(const ParameterStep&) const;
};

/// Returns nothing if no single rule of Adam makes the steps of the reference.
std::optional<ReferenceRule> reference_rule(const RecordedSteps&);

}  // namespace assay
