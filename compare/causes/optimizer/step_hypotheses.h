#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/other_gradients.h"
#include "assay/compare/causes/optimizer/step_rule.h"

namespace assay {

/// What is otherwise than in the right rule.
struct StepChange {
  const Operator* op;
  StepForm attributes;
  std::int64_t times;
  std::set<std::size_t> lost;
  auto operator<=>(const StepChange&) const = default;
};

/// A rule and the numbers of it that the results tell.
struct StepHypothesis {
  StepRule rule;
  std::vector<StepSetting> free = {};
  std::size_t solved_in = 0;
  bool is_known = false;         ///< another parameter showed it
  std::string of_gradient = {};  ///< OtherGradient::text
};

/// What may have been done instead of the right step of one parameter, the cheapest first.
class StepHypotheses {
 public:
  /// All must outlive this.
  /// @param known  what other parameters of the step showed: tried first
  StepHypotheses(const std::vector<StepChange>& known, const ParameterStep& s, const StepRule& right,
                 const std::vector<OtherGradient>& others)
      : known_(known), s_(s), t_(s.actual), right_(right), others_(others), states_(t_.states.size()) {}

  /// Of the states, where state k is wrong.
  std::vector<StepHypothesis> of_states(std::size_t k) const;
  /// Of the parameter: the fewest changes first; numbers that are solved after those that were seen.
  std::vector<StepHypothesis> of_parameter(const StepRule& base) const;

 private:
  StepRule changed(const StepChange&) const;
  StepRule as(const Operator&) const;

  const std::vector<StepChange>& known_;
  const ParameterStep& s_;
  const StepTensors& t_;
  const StepRule& right_;
  const std::vector<OtherGradient>& others_;
  std::size_t states_;
};

}  // namespace assay
