#pragma once

#include <string_view>

#include "assay/golden/tensor.h"

namespace assay {

/// The shape that torch.reshape(x, wanted) has: one extent may be -1.
/// @param op  who asks, for the message
/// @throws Error  if it does not hold the elements of x
Shape reshaped(const Shape& x, const Shape& wanted, std::string_view op);

}  // namespace assay
