#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Windows that cover the last one to three dimensions in as many parts as are asked for: part o of n goes
/// from floor(o in / n) to ceil((o + 1) in / n) (torch.nn.AdaptiveAvgPool2d).
namespace assay {

constexpr Attribute output_size = {"output_size", "null",
                                   "extents of y, or one number for all dimensions behind [N, C]"};

struct AdaptiveWindows {
  Shape out;
  std::vector<std::vector<std::int64_t>> seen;  ///< per window in C order, flat positions in C order
  std::int64_t largest, covering;               ///< elements of a window, windows that may share an element
};
/// @throws Error  where x has not these dimensions, or an extent is below 1
AdaptiveWindows adaptive_windows(std::string_view op, const Shape& x, const Attributes&);

/// A* and S*: x before and in the spatial dimensions; O*: the windows; "window" and "covering".
void bind_adaptive_pool(std::string_view op, Dims&, const Shape& x, const Attributes&);

}  // namespace assay
