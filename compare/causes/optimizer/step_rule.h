#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/call_variant.h"
#include "assay/compare/causes/optimizer/parameter_steps.h"

namespace assay {

/// Attributes, by name.
using StepForm = std::map<std::string, AttributeValue>;

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
  AttributeValue value(const StepSetting&) const;
  double number(const StepSetting&) const;
  void set(const StepSetting&, double);
  void set(std::string_view attribute, AttributeValue value);
  void set(const StepForm&);
};

/// The settings of an operator that are of this kind; those of them that a result shows
/// (StepTensors::result).
std::vector<StepSetting> settings_of(const Operator&, StepNumber);
std::vector<StepSetting> settings_in(const Operator&, const StepTensors&, std::size_t result, StepNumber);
/// The result that shows a setting.
std::size_t result_of(const Operator&, const StepTensors&, std::string_view output);

/// The forms that a result of an operator has in the world: combinations of what was seen, the default first.
std::vector<StepForm> forms_in(const Operator&, const StepTensors&, std::size_t result);
/// The numbers that a setting has in the world, the default first.
std::vector<double> numbers_seen(const Operator&, const StepSetting&);

/// Whether it steps matrices as a whole: a thousand times as long as to read them.
bool steps_matrices(const Operator&);

}  // namespace assay
