#pragma once

#include <span>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor_source.h"

/// Whether a pair that is within its rule was judged at all: a rule that zeros would pass as well is no
/// evidence. What fails here is mistrusted, with the reason; Finding::metrics are filled before.
namespace assay {

/// False where no element is a number on both sides: NaN against NaN is equal, and so is an infinity that its
/// dtype forced, but no number was judged.
bool judge_finite(Finding&);

/// Where the allowed error is as large as the value itself, zeros would have been inside too: of those
/// elements the table says nothing. What is wrong with them, in relative L2 of the whole tensor, is held to
/// the same tolerance; a tensor that fails here may still be right, but this rule cannot tell.
void judge_row_trust(Finding&, const TensorSource& actual, const TensorSource& reference, const Row&);

/// A bound is proved, so results inside it pass even where it is larger than the values; but not those that
/// are no better than zeros, and nothing passes by a bound that is infinite: that is no guarantee.
void judge_bound_trust(Finding&, const TensorSource& actual, const TensorSource& reference,
                       std::span<const double> bound);

}  // namespace assay
