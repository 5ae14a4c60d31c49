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

}  // namespace assay
