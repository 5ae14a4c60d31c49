#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/parameter_groups.h"
#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// The norm of all recorded gradients of a step.
struct GradientSquares {
  std::map<std::string, double> by_parameter;  ///< sums of squares
  std::vector<NamedShape> parameters;
  std::int64_t largest = 0;  ///< elements of one parameter

  double norm() const;
  double norm_of(const std::set<std::string>&) const;
  /// The relative rounding error of the norm in a program: its sums over the elements of a parameter and over
  /// parameters.
  double error(double u) const;
};
GradientSquares gradient_squares(const std::vector<ReducedGradient>&, bool is_actual);

/// Names the gradients that a wrong norm counts more than once or not at all: "the experts 2 times (2 = tp)",
/// "sqrt(2) times the norm", "without lm_head.weight", "of the layers .. only". Returns nothing if no such
/// sum has this norm.
/// @param error  the relative error of `norm`
std::optional<std::string> explain_norm(const GradientSquares&, double norm, double error,
                                        std::span<const KnownSize>);

}  // namespace assay
