#pragma once

#include "assay/operators/engine/copy.h"

/// Quantized tensors: elements that share a scale.
namespace assay {

/// Which elements of x share a scale: boxes of `box` elements, one extent per dimension of x; the last along
/// a dimension may be smaller.
struct ScaleGroups {
  Shape x, box;
  Shape shape;  ///< of the scales

  /// For every element of x its scale.
  Positions of_elements() const;
};

/// Boxes of these extents over the trailing dimensions, of one element over those before.
/// @throws Error  for more extents than x has dimensions, or one below 1
ScaleGroups block_groups(const Shape& x, const std::vector<std::int64_t>& block, std::string_view op);

/// By the attributes `axis` and `block`, of which one may be set: one scale per index of the axis, per block,
/// or one scale, of shape [], for all.
ScaleGroups scale_groups(const Shape& x, const Attributes&, std::string_view op);
inline constexpr Attribute axis_attribute = {"axis", "null", "the dimension with one scale per index"};
inline constexpr Attribute block_attribute = {
    "block", "null", "extents, over the trailing dimensions, of the blocks with a scale each"};

/// The smallest scale that a call may have: x / scale and code scale stay finite.
inline constexpr Domain scale_domain = {.low = -0x1p63, .high = 0x1p63, .least = 0x1p-63};

/// The largest magnitude that shares each scale, at least `least`; NaN where an element is.
template <class T>
std::vector<T> largest_magnitudes(const std::vector<T>& x, const ScaleGroups& groups, const T& least) {
  const Positions group = groups.of_elements();
  std::vector<T> amax(static_cast<std::size_t>(element_count(groups.shape)), least);
  for (std::size_t i = 0; i < x.size(); ++i) {
    T& largest = amax[static_cast<std::size_t>(group[i])];
    largest = maximum(largest, abs(x[i]));
  }
  return amax;
}

/// code = x / scale rounded to `to`, dequantized = code scale.
template <class T>
void quantize_with(Tensors<T>& t, const ScaleGroups& groups, DType to) {
  const Positions group = groups.of_elements();
  const std::vector<T>&x = t.slot("x").values, &scale = t.slot("scale").values;
  std::vector<T>&codes = t.slot("code").values, &dequantized = t.slot("dequantized").values;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T s = scale[static_cast<std::size_t>(group[i])];
    const T code = stepped<T>(
        x[i] / s, [to](double v) { return round_to(to, v, Rounding::nearest_even, Overflow::saturate); });
    codes[i] = code;
    dequantized[i] = code * s;
  }
}

/// The dtype that `to` names. Throws Error unless it is one of fp8.
DType fp8_attribute(const Attributes&, std::string_view op);

}  // namespace assay
