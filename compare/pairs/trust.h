#pragma once

#include <span>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor_source.h"

/// Trust in a pair that is within its rule: a rule that zeros would pass as well is no evidence. A pair that
/// fails here is mistrusted, with the reason. Finding::metrics must be filled.
namespace assay {

/// Returns false if every element is NaN: they are equal, but no number was judged. An infinity that its
/// dtype forces is what the number rounds to.
bool judge_finite(Finding&);

/// Holds elements to the tolerance as a whole if their allowed error is as large as the value itself: zeros
/// would be inside too, so the table says nothing about them. Their error in relative L2 of the whole tensor
/// must be within the same tolerance. A tensor that fails here may be right, but this rule cannot tell.
void judge_row_trust(Finding&, const TensorSource& actual, const TensorSource& reference, const Row&);

/// What elements tell of the bound they are judged by.
struct BoundTrust {
  BoundTrust() = default;
  BoundTrust(std::span<const double> actual, std::span<const double> golden, std::span<const double> bound);
  void add(const BoundTrust&);

  bool zeros_pass = true, only_zeros = true;  ///< zeros are within; golden has nothing else
  bool unbounded = false;                     ///< elements differ where nothing is guaranteed
};

/// A pair that was measured against the bound of each element.
struct MeasuredByBound {
  Metrics metrics;
  BoundTrust trust;
};

/// A bound is proved, so a result inside it passes even if the bound is larger than the values. It does not
/// pass if it is no better than zeros, or if the bound is infinite and guarantees nothing.
void judge_bound_trust(Finding&, const BoundTrust&);

}  // namespace assay
