#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Programs scale a loss as they like and take it back where gradients are added up: an average over
/// data-parallel ranks against a sum, a division by the micro-batches before or behind. Then all gradients
/// within micro-batches are the same number of times as large as the reference's, and those of the
/// parameters are as large as there.
struct ScaleConvention {
  double factor = 1;               ///< of a loss on the actual side, in units of the reference's
  std::string text = {};           ///< "2 = dp"
  std::vector<Identity> losses{};  ///< those that were recorded with it, in step 0 and micro-batch 0

  /// By how much that tensor is larger: the factor, or 1.
  double of(const Identity&) const;
  /// The actual side's tensor in the units of the reference, rounded to its dtype.
  TensorSource in_units_of_reference(const Identity&, const TensorSource& actual) const;
};

/// The end of a parameter's gradient before it is summed over ranks.
inline constexpr std::string_view unreduced = ".unreduced";
/// Whether it was made before gradients were added up over micro-batches and ranks.
bool is_within_micro_batch(const Identity&);
/// In step 0 and micro-batch 0.
Identity in_any_micro_batch(Identity);

}  // namespace assay
