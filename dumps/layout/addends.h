#pragma once

#include <span>

#include "assay/golden/tensor.h"

namespace assay {

/// Whether the sum of all parts is nearer to the whole than the first of them is, each up to a factor: one
/// side may average where the other adds up.
bool are_addends(std::span<const Tensor> parts, const Tensor& whole);

}  // namespace assay
