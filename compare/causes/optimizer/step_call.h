#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/call_judge.h"
#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/values/least_squares.h"

namespace assay {

/// What makes a step, right or wrong: the call of an optimizer on recorded tensors.
struct StepRule {
  const Operator* op = nullptr;
  CallVariant variant = {};
  // Of a mistake alone:
  std::int64_t times = 1;                  ///< the whole step, one after the other with the same gradient
  std::set<std::size_t> lost = {};         ///< states that were zeros before it
  std::optional<TensorSource> other = {};  ///< a gradient in the place of the recorded one
  bool adds = false;                       ///< or added to it
  /// The states are those that make the recorded ones of after the step: a parameter is judged apart from
  /// what is wrong with its states.
  bool from_recorded_states = false;

  /// The operator's defaults, and what it has of the given attributes.
  static StepRule of(const Operator&, const Attributes& given = {});
  double number(const StepSetting&) const;
  void set(const StepSetting&, double);
  void set(std::string_view attribute, AttributeValue value);
};

/// The settings of an operator that are of this kind; those that a result shows (StepTensors::result).
std::vector<StepSetting> settings_of(const Operator&, StepNumber);
std::vector<StepSetting> settings_in(const Operator&, const StepTensors&, std::size_t result);
/// The result that shows a setting.
std::size_t result_of(const Operator&, const StepTensors&, std::string_view output);

/// Whether it steps matrices as a whole: a thousand times as long as to read them.
bool steps_matrices(const Operator&);

/// Which elements are looked at.
enum class Elements : std::uint8_t {
  all,
  until_wrong,  ///< as far as the first that is outside
  some          ///< a sample
};

/// The recorded result against that of the call. Every element is held to the bound of the operator.
StepErrors step_errors(const StepTensors&, const StepRule&, std::size_t result, Elements = Elements::all);
/// Of several results, for little more than of one.
std::vector<StepErrors> step_errors(const StepTensors&, const StepRule&,
                                    const std::vector<std::size_t>& results, Elements);

/// Solves settings from a recorded result, in a sample of its elements: Gauss and Newton, which is exact for
/// what the result is linear in. A number is short where a short one is within its reach.
struct StepFit {
  StepRule rule;
  std::vector<Estimate> numbers;
};
std::optional<StepFit> fit_step(const StepTensors&, const StepRule& start, std::size_t result,
                                const std::vector<StepSetting>&);

}  // namespace assay
