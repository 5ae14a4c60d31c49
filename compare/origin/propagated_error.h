#pragma once

#include <optional>
#include <vector>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// The error of a result beside the errors of its inputs.
struct PropagatedError {
  double error = 0, given = 0;  ///< relative L2 of the result, and the largest one of an input
  double ratio = 0;             ///< error / the error that the inputs explain
};

/// Judges a result of an operator that is not known. Returns nothing if the result added an error: if it is
/// off by more than twice its inputs, as a whole or in a row of the last dimension (without rows: in an
/// element) beside the usual size of a row, or if a value is no number on one side. A product of two inputs
/// with equal errors is off by twice as much, relative to itself. Throws Error if a tensor cannot be read.
std::optional<PropagatedError> propagated_error(const Sides&, const Pair& result,
                                                const std::vector<Pair>& inputs);

/// The same of finding `i`, where its error is no larger than that of its inputs. Parameters do not count:
/// they say little about the result that they change, and the change in a step is small beside the parameter.
/// What cannot be read is noted in the finding.
std::optional<Exemption> rounding_of_inputs(const Sides&, std::vector<Finding>&, const std::vector<Pair>&,
                                            std::size_t i, const std::vector<std::size_t>& inputs);

/// Whether a factor and a constant that all elements share make most of the difference, as a mistake's.
/// Roundings have no such: of n, a share of 2 / n of their squares looks like it by accident. False for few.
bool differs_as_one(const std::vector<double>& actual, const std::vector<double>& right);

}  // namespace assay
