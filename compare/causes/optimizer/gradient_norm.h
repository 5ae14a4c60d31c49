#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/causes/optimizer/parameter_steps.h"
#include "assay/compare/causes/values/parameter_groups.h"
#include "assay/compare/result/diagnosis.h"

namespace assay {

/// The norm of all recorded gradients of a step.
struct GradientSquares {
  std::map<std::string, double> by_parameter;  ///< sums of squares
  /// By axis of the mesh and parameter that is cut along it: of the pieces of the axis' first ranks.
  std::map<std::string, std::map<std::string, double>> of_first;
  std::vector<NamedShape> parameters;
  std::int64_t largest = 0;         ///< elements of one parameter
  double magnitudes = 0, peak = 0;  ///< the sum of all, and the largest
  DType coarsest = DType::float64;  ///< among the gradients
  /// The finest among them, in which torch.nn.utils.clip_grad_norm_ has what it makes of the norms of all.
  DType finest = DType::float64;

  double norm() const;
  double square_of(const std::set<std::string>&) const;
  /// The relative rounding error of the norm in a program: its sums over the elements of a parameter and over
  /// parameters.
  double error(DType arithmetic) const;
  /// More where the norms of parameters and that of all are stored in the gradients' dtype, as
  /// torch.nn.utils.clip_grad_norm_ does.
  double error_of_storing(DType arithmetic) const;
};
GradientSquares gradient_squares(const std::vector<ReducedGradient>&, bool is_actual, const Dump&);

/// What a wrong norm is: "the experts counted 2 times (2 = tp)", "without lm_head.weight", "of the layers ..
/// only", "the norm's square".
struct NormReason {
  std::string text;
  double evidence = 0;  ///< bits beyond those by which one of as many as were tried fits by accident
};
/// @param error  the relative error of `norm`
std::optional<NormReason> explain_norm(const GradientSquares&, double norm, double error,
                                       std::span<const KnownSize>);

}  // namespace assay
