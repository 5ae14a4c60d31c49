#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Sliding windows over the last one, two or three dimensions, PyTorch's rules.
namespace assay {

/// One spatial dimension: output o looks at the inputs start(o) + i dilation, i < kernel, where they exist.
struct PoolAxis {
  std::int64_t in, out, kernel, stride, padding, dilation;
  std::int64_t start(std::int64_t o) const { return o * stride - padding; }
};

/// The numbers of an attribute: one per spatial dimension, or one for all.
/// @throws Error  for another count, or a number below `least`
std::vector<std::int64_t> per_axis(std::string_view op, const Attributes&, std::string_view attribute,
                                   std::size_t spatial, std::int64_t least);

/// From kernel_size, stride (null: kernel_size), padding, ceil_mode and, if the operator has it, dilation: a
/// number each, or one per spatial dimension. A number for kernel_size leaves x its first two dimensions.
/// @throws Error  where torch.nn.functional.max_pool2d does: windows without extent, padding of more than
///                half a window, no output at all
std::vector<PoolAxis> pool_axes(std::string_view op, const Shape& x, const Attributes&);

/// A* and S*: x before and in the spatial dimensions; O*: the windows; "window": elements of one; "covering":
/// how many windows may share an element.
void bind_pool(Dims&, std::span<const PoolAxis>, const Shape& x);

/// Per window in C order, the flat positions in S* of the elements that it sees, in C order.
std::vector<std::vector<std::int64_t>> windows(std::span<const PoolAxis>);

/// What falls on each of n positions is added up there.
template <class T>
class Collected {
 public:
  explicit Collected(std::int64_t n) : shares_(static_cast<std::size_t>(n)) {}
  void add(std::int64_t position, const T& share) {
    shares_[static_cast<std::size_t>(position)].push_back(share);
  }
  T total(std::int64_t position) const {
    const std::vector<T>& all = shares_[static_cast<std::size_t>(position)];
    return sum<T>(static_cast<std::int64_t>(all.size()),
                  [&](auto i) { return all[static_cast<std::size_t>(i)]; });
  }

 private:
  std::vector<std::vector<T>> shares_;
};

}  // namespace assay
