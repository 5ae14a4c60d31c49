#pragma once

#include <optional>
#include <vector>

namespace assay {

/// Returns a of y = sum a_k columns_k in the least squares sense. Nothing where a column is within float64's
/// rounding of what the others span.
/// @param columns  not empty, each as long as y
std::optional<std::vector<double>> weights_of(const std::vector<std::vector<double>>& columns,
                                              const std::vector<double>& y);

std::vector<double> weighted_sum(const std::vector<std::vector<double>>& columns,
                                 const std::vector<double>& a);

/// What weights may be off by that were fitted to a result stored with this roundoff: a weight is a mean over
/// the elements, whose roundings are some units each.
double uncertainty_of_weights(double stored_roundoff);
/// How often each counts, whole numbers as such. Nothing where all count alike: that is a factor.
std::optional<std::vector<double>> counts_of(const std::vector<double>& weights, double uncertainty);

}  // namespace assay
