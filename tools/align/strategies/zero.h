#pragma once

#include <string>

#include "assay/align/ranks/ranks.h"

namespace assay::align {

/// A tensor cut flat over the ranks that hold the same piece of a parameter.
class ZeroShards {
 public:
  ZeroShards(const Ranks& ranks, bool of_experts);

  /// Axes along which they are cut.
  const std::vector<Axis>& axes() const { return axes_; }
  /// This rank's shard; what does not divide is filled up with zeros.
  Tensor shard(const Tensor&) const;
  Tensor gather(const Tensor& shard, const Shape&, const std::string& name) const;
  /// This rank's shard of the sum of open tensors over the ranks.
  Tensor reduce_scatter(const Tensor& open, const std::string& name) const;

 private:
  Tensor padded(const Tensor&, std::size_t leading) const;

  const Ranks& ranks_;
  std::vector<Axis> axes_;
  std::vector<int> group_;
  std::int64_t me_;
};

}  // namespace assay::align
