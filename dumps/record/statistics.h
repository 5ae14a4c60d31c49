#pragma once

#include <optional>

#include "assay/dumps/record/dump.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Computes the counts, the extremes and the exact sums of all elements, without mean and norm.
Statistics statistics_of(const TensorSource&);
/// Returns sqrt(sum x^2) within two roundings of float64; nothing if an element is not finite, or if the
/// squares leave the range of float64.
std::optional<double> l2_norm(const TensorSource&);

}  // namespace assay
