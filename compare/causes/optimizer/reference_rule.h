#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "assay/compare/causes/optimizer/adam_rule.h"

namespace assay {

/// The optimizer that the reference's own recording shows. Which parameters' steps it reproduces within
/// rounding, stage by stage, is known: of the others nothing is said.
struct ReferenceRule {
  AdamRule rule;
  /// Others that reproduce the recording as well: what tells them apart is lost in its rounding.
  std::vector<AdamRule> equivalent_rules;
  std::int64_t before_first = 0;        ///< t of a step is its number minus this
  double max_norm = 0;                  ///< inf: it was never seen to clip; 0: clips by no norm known
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

/// Nothing where the reference's steps are not those of one Adam.
std::optional<ReferenceRule> reference_rule(const RecordedSteps&);

}  // namespace assay
