// ZeRO (Rajbhandari 2019, arXiv 1910.02054), over the ranks of dp and cp, of experts edp. Each parameter is
// cut flat into as many equal shards as there are ranks, zeros behind. A rank holds
//   zero=1  all parameters and gradients, of optimizer states its shard
//   zero=2  of gradients too: those of each micro-batch are reduce-scattered (SUM, no scaling) and added up
//   zero=3  of parameters too: all-gathered for each micro-batch
// It updates its shard; for 1 and 2 the parameters are then all-gathered. The update is element by element,
// so that it is that of one device.
#include "assay/align/strategies/zero.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/align/arithmetic/pieces.h"

namespace assay::align {

ZeroShards::ZeroShards(const Ranks& ranks, bool of_experts)
    : ranks_(ranks),
      axes_(of_experts ? std::vector{Axis::edp} : std::vector{Axis::cp, Axis::dp}),
      group_(ranks.mesh().group(axes_)),
      me_(std::ranges::find(group_, ranks.mesh().rank()) - group_.begin()) {}

// Flat behind the leading dimensions.
Tensor ZeroShards::padded(const Tensor& t, std::size_t leading) const {
  const auto n = static_cast<std::int64_t>(group_.size());
  Shape shape(t.shape().begin(), t.shape().begin() + static_cast<std::ptrdiff_t>(leading));
  const std::int64_t size = t.size() / element_count(shape);
  shape.push_back(size);
  const Tensor flat = t.reshaped(shape);
  shape.back() = (n - size % n) % n;
  return shape.back() == 0 ? flat : joined(std::vector{flat, Tensor(t.dtype(), shape)}, leading);
}

Tensor ZeroShards::shard(const Tensor& t) const {
  return piece_of(padded(t, 0), 0, me_, static_cast<std::int64_t>(group_.size()));
}

Tensor ZeroShards::gather(const Tensor& shard, const Shape& shape, const std::string& name) const {
  const std::vector<Tensor> all =
      ranks_.communicator().all_gather(group_, fmt::format("the shards of {}", name), shard);
  return piece(joined(all, 0), 0, 0, element_count(shape)).reshaped(shape);
}

Tensor ZeroShards::reduce_scatter(const Tensor& open, const std::string& name) const {
  const std::size_t leading = ranks_.arithmetic().leading();
  const Tensor flat = padded(open, leading);
  const auto n = static_cast<std::int64_t>(group_.size());
  std::vector<Tensor> parts;
  for (std::int64_t k = 0; k < n; ++k) parts.push_back(piece_of(flat, leading, k, n));
  return ranks_.sum_pieces(group_, fmt::format("the gradient's shards of {}", name), parts);
}

}  // namespace assay::align
