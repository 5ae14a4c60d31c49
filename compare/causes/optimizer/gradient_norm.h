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

/// The norm of all gradients of a step, from the recorded ones.
struct GradientSquares {
  std::map<std::string, double> by_parameter;  ///< sums of squares
  std::vector<NamedShape> parameters;
  std::int64_t largest = 0;  ///< elements of one parameter

  double norm() const;
  double norm_of(const std::set<std::string>&) const;
  /// By how much, relative, a program's own norm may differ: the rounding of its sums, those of a parameter
  /// and that over parameters.
  double error(double u) const;
};
GradientSquares gradient_squares(const std::vector<ReducedGradient>&, bool is_actual);

/// Which gradients a wrong norm has counted more than once, or not at all: "the experts 2 times (2 = tp)",
/// "sqrt(2) times the norm", "without lm_head.weight", "of the layers .. only". Nothing if no such sum has
/// this norm.
/// @param error  relative, of `norm`
std::optional<std::string> explain_norm(const GradientSquares&, double norm, double error,
                                        std::span<const KnownSize>);

}  // namespace assay
