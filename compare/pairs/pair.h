#pragma once

#include <vector>

#include "assay/compare/pairs/scale_convention.h"
#include "assay/compare/result/diagnosis.h"
#include "assay/dumps/layout/merge.h"

namespace assay {

/// One tensor of the comparison; nullptr for a side that lacks it.
struct Pair {
  const LogicalTensor* actual = nullptr;
  const LogicalTensor* reference = nullptr;
  const Identity& id() const { return reference != nullptr ? reference->id : actual->id; }
};

/// The two sides of a comparison.
struct Sides {
  const Dump& actual;
  const Dump& reference;
  const std::vector<LogicalTensor>& actual_tensors;
  const std::vector<LogicalTensor>& reference_tensors;
  std::vector<KnownSize> sizes = {};  ///< sizes that the dumps do not state
  std::optional<ScaleConvention> convention = {};
};

/// The actual side's tensor as it is compared: under the shape of the reference where both meet
/// (common_shape), and in its units.
Merged as_compared(const Dump& actual, const Pair&, const std::optional<ScaleConvention>&);

/// Whether one side lacks the tensor, and that of the other has no elements or is a gradient of zeros: a
/// program may or may not record that of an expert without tokens.
bool is_nothing(const Dump& actual, const Dump& reference, const Pair&);

}  // namespace assay
