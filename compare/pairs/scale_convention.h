#pragma once

#include <map>
#include <string>
#include <string_view>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Programs scale a loss as they like and take it back where gradients are added up: an average over
/// data-parallel ranks against a sum, a division by the micro-batches before or behind. Then all gradients
/// within micro-batches are the same number of times as large as the reference's, and those of the
/// parameters are as large as there.
///
/// What a program writes down as its loss is its own affair, too: a sum over tokens against their mean, or
/// the part of a micro-batch in the loss of its step.
struct ScaleConvention {
  double factor = 1;      ///< of gradients within micro-batches, in units of the reference's
  std::string text = {};  ///< "2 = dp"
  struct OfLoss {
    double factor = 1;
    std::string text;
  };
  std::map<Identity, OfLoss> losses{};  ///< those that are not as large as the reference's

  /// By how much that tensor is larger: its factor, or 1.
  double of(const Identity&) const;
  const std::string& text_of(const Identity&) const;
  /// The actual side's tensor in the units of the reference, rounded to its dtype.
  TensorSource in_units_of_reference(const Identity&, const TensorSource& actual) const;
};

/// The end of a parameter's gradient before it is summed over ranks.
inline constexpr std::string_view unreduced = ".unreduced";
/// Whether it was made before gradients were added up over micro-batches and ranks.
bool is_within_micro_batch(const Identity&);

}  // namespace assay
