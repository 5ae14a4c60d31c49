#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// The recorded tensors of one side for one step of one parameter. Without a value: not recorded.
struct StepTensors {
  std::optional<TensorSource> before, after, gradient;
  std::optional<TensorSource> first_before, first, second_before, second;  ///< moments: exp_avg, exp_avg_sq
  bool starts = false;  ///< no step was recorded before: moments that were not recorded are zeros
  /// The unit roundoff of the step: that of float64 if all tensors were recorded in float64, else that of
  /// float32.
  double u = 0;
};

/// One step of one parameter on both sides, and the findings of its results.
struct ParameterStep {
  std::string module, arg;
  std::int64_t step = 0;
  Shape shape;
  StepTensors actual, reference;
  std::optional<std::size_t> after_finding, first_finding, second_finding, gradient_finding;

  std::string name() const { return module + "." + arg; }
};

/// A scalar of a step, on each side that recorded it.
struct StepScalar {
  std::optional<double> actual, reference;
  std::optional<std::size_t> finding;
};

/// A gradient after reduction, before clipping; of every parameter, whatever its optimizer.
struct ReducedGradient {
  std::string name;
  Shape shape;
  TensorSource actual, reference;
};

/// The steps of optimizers like Adam, in order: of parameters with recorded moments on both sides.
struct RecordedSteps {
  std::vector<ParameterStep> steps;
  std::map<std::int64_t, StepScalar> grad_norms;
  std::map<std::int64_t, std::vector<ReducedGradient>> gradients;  ///< by step
};

RecordedSteps recorded_steps(const std::vector<Finding>&, const std::vector<Pair>&, const Sides&);

}  // namespace assay
