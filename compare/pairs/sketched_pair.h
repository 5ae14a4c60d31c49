#pragma once

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/rules/expectation.h"
#include "assay/dumps/layout/merged_sketch.h"

namespace assay {

/// Whether the pair is compared by sketches: both sides have values or sketches, one of them a sketch.
bool is_compared_by_sketch(const Sides&, const Pair&);

/// Both sides of a pair as sketches that can be subtracted: of one spec, and of the reference's shape where
/// both meet (common_shape), and in its units (Sides::convention).
struct SketchedPair {
  MergedSketch actual, reference;
};
/// @throws Error  as merge_sketches does, and for sketches of different seeds
SketchedPair sketched_pair(const Sides&, const Pair&);

/// What elements within atol + rtol |reference| can make of the L2 norm of actual - reference: at most
/// sqrt(n) atol + rtol |reference| (Minkowski).
double allowed_distance(double atol, double rtol, double norm, std::int64_t elements);
/// The same of the row that decided, on the tensor's own scale: on_its_own_scale.
double allowed_distance_on_its_own_scale(const Finding&);

/// Judges a pair by NaN and infinities, by fingerprints, and by the interval in which the L2 norm of the
/// difference lies. Elements outside of the rule that leave the norm inside are not seen. Fills
/// Finding::sketch; Finding::actual_* and reference_* must be filled.
void judge_sketches(Finding&, const SketchedPair&, const Expectation&);

/// Accepts agreement by sketches as a comparison: the tensor passes, and its rule says so.
void accept_sketches(Finding&);

}  // namespace assay
