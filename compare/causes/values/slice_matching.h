#pragma once

#include <cstdint>
#include <vector>

#include "assay/compare/causes/values/index_map.h"

namespace assay {

/// The slices of the reference that the slices of the actual tensor are, along one dimension.
struct SliceMatch {
  std::vector<std::int64_t> source;  ///< empty if a slice has no match
  std::int64_t moved = 0;            ///< slices at another place
  bool bijective = false;            ///< every slice of the reference occurs once
};

/// Matches the slices that hold wrong elements by random projections of each, nearest first. A match is a
/// guess until it has been verified.
/// @param count, inner  the tensor is seen as [outer, count, inner]
SliceMatch match_slices(const FailingPair&, std::int64_t count, std::int64_t inner);

/// "rolled", "swapped", .. : the shortest description of `source`, and how many bits choose it.
struct PermutationText {
  std::string text;
  double bits;
};
/// @param one, many  the permuted things: "row", "rows"
PermutationText describe_permutation(const SliceMatch&, const std::string& one, const std::string& many);

}  // namespace assay
