#pragma once

#include <optional>

#include "assay/dumps/record/dump.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// Of all elements: counts, smallest, largest and the exact sums; no mean and no norm.
Statistics statistics_of(const TensorSource&);
/// sqrt(sum x^2), within two roundings of float64. Nothing if an element is not finite, or the squares leave
/// the range of float64.
std::optional<double> l2_norm(const TensorSource&);

}  // namespace assay
