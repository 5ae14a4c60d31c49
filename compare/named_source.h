#pragma once

#include <string>

#include "assay/golden/tensor_source.h"

namespace assay {

/// A tensor in memory, whole, which is read where it lies.
struct NamedSource {
  std::string name;
  TensorSource tensor;
};

}  // namespace assay
