#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// The recorded tensors of one side for one step of one parameter. Without a value: not recorded.
struct StepTensors {
  TensorSource gradient;
  std::optional<TensorSource> before, after;
  std::vector<std::optional<TensorSource>> states_before;  ///< zeros where no step was recorded before
  std::vector<TensorSource> states;                        ///< as StepUsage::states lists them
  /// float64 if all tensors were recorded in float64, else float32.
  DType arithmetic = DType::float32;

  /// The recorded result: a state, or behind these the parameter.
  const TensorSource& result(std::size_t k) const { return k < states.size() ? states[k] : after.value(); }
  std::size_t results() const { return states.size() + (after ? 1 : 0); }
};

/// One step of one parameter on both sides, and the findings of its results.
struct ParameterStep {
  std::string module, arg;
  std::int64_t step = 0;
  bool starts = false;  ///< no step was recorded before
  Shape shape;
  std::vector<const Operator*> ops;  ///< that have such states
  StepTensors actual, reference;
  std::vector<std::size_t> findings;  ///< of StepTensors::results
  bool differs = false;               ///< in any of its tensors

  std::string name() const { return module + "." + arg; }
};

/// A scalar of a step, on each side that recorded it.
struct StepScalar {
  double actual = 0, reference = 0;
  std::size_t finding = 0;
};

/// A gradient after reduction, before clipping; of every parameter, whatever its optimizer.
struct ReducedGradient {
  std::string name;
  Shape shape;
  std::optional<TensorSource> actual, reference;  ///< nothing: that side has none
  std::vector<std::size_t> records;               ///< of the actual side
  bool has_one_value = true;                      ///< on the actual side; else ranks hold different ones
};

/// The steps of optimizers, in order, of parameters whose states and gradients both sides recorded.
struct RecordedSteps {
  std::vector<ParameterStep> steps;
  std::map<std::int64_t, std::vector<StepScalar>> scalars;         ///< by step: one of them may be the norm
  std::map<std::int64_t, std::vector<ReducedGradient>> gradients;  ///< by step
};

/// @param beside  pairs that nobody asked for: their gradients are in the norm, too
RecordedSteps recorded_steps(const std::vector<Finding>&, const std::vector<Pair>&,
                             const std::vector<Pair>& beside, const Sides&);

}  // namespace assay
