#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Masks of keys as programs hold them: [B, S] of the tokens that are there, or what is made of it for
/// scores, as flags or as a bias.
namespace assay {

struct Recorded;

/// Which elements are visible, 1, or hidden, 0, of an argument with Arg::hides; nothing if the tensor is no
/// mask. Integers and flags are 0 and 1, and so may be floats; else these are added to scores, and are 0 or
/// so low that nothing is left of the key.
std::optional<std::vector<std::int64_t>> visible_in(DType, std::span<const double> values);

/// What a mask is for.
struct MaskedScores {
  std::int64_t B, H, L, S;  ///< sequences, heads of q, queries and keys
};

/// The extents of [B, S], [L, S], [B, L, S] or [B, H, L, S] as four, 1 where all are alike; nothing if the
/// mask is none for these scores. It may be for more queries and keys, of which the first count.
std::optional<Shape> extents_of_mask(const Shape& mask, const MaskedScores&);

/// For an operator's `goes_with`: the same, and for no more queries and keys, whatever the heads.
bool mask_goes_with(const Shape& mask, std::int64_t B, std::int64_t L, std::int64_t S);

/// Throws Error if the mask is none for these scores.
void check_mask(std::string_view op, InputShapes inputs, const MaskedScores&);

/// The visible keys of these scores, of the shape that attention takes: extents of 1 where all are alike.
struct CutMask {
  Shape shape;
  std::vector<std::int64_t> visible;
};
CutMask cut_mask(const std::vector<std::int64_t>& visible, const Shape& mask, const MaskedScores&);

/// Of attention that knows which keys are there.
inline constexpr Arg mask_argument = {.name = "mask",
                                      .shape = "M*",
                                      .role = Role::index,
                                      .low = 0,
                                      .high = 1,
                                      .optional = true,
                                      .hides = true,
                                      .domain = everywhere};

/// What a query makes that sees no key: kernels leave zeros, a softmax of equal scores the mean of all v.
inline constexpr Attribute unseen_attribute = {"unseen", "\"zeros\"",
                                               "what a query makes that sees no key: zeros, mean: that of "
                                               "all v, or either of them; a result shows which"};

/// Sets it by the result of a call with a mask: attention makes no row of zeros otherwise.
void infer_unseen(Recorded&);

}  // namespace assay
