#pragma once

#include <cmath>

#include "assay/golden/dtype.h"

namespace assay {

/// The reference does not fit into the dtype of the actual side and rounds to the very infinity that is
/// there.
inline bool overflows_to(DType dtype, double reference, double actual) {
  return std::isinf(actual) && std::isfinite(reference) && is_float(dtype) &&
         round_to(dtype, reference) == actual;
}

}  // namespace assay
