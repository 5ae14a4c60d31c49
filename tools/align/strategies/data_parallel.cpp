// Data parallel (docs/semantics.md D2). Every rank of dp holds all parameters and works on other
// micro-batches: of M on each of d ranks, rank r has the global micro-batches r, r + d, .. The loss of one
// counts 1 / (M d), or by its targets (loss_shares.cpp), so that gradients are summed and not scaled: SUM
// over dp and over all axes along which a micro-batch's gradient is partial (cp, sequence parallel's tp, of
// experts edp), then over the ranks of pp that hold the parameter.
#include "assay/align/strategies/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay::align {

Tensor sum_gradient(const Ranks& ranks, const std::string& name, const PlannedParameter& p,
                    const Tensor& open, const std::vector<Axis>& but) {
  std::vector<Axis> axes;
  for (const Axis axis : p.summed_over) {
    if (std::ranges::find(but, axis) == but.end()) axes.push_back(axis);
  }
  const std::string what = fmt::format("the sum of the gradient of {}", name);
  const Tensor sum = ranks.sum(ranks.mesh().group(axes), what, open);
  return ranks.sum(holders_of(ranks.mesh(), p), what + " over pp", sum);
}

std::vector<int> holders_of(const Mesh& mesh, const PlannedParameter& p) {
  const std::vector<int> line = mesh.group({Axis::pp});
  std::vector<int> holders;
  for (const std::int64_t rank : p.holders) holders.push_back(line[static_cast<std::size_t>(rank)]);
  return holders;
}

bool counts_once(const Mesh& mesh, const PlannedParameter& p, bool of_experts,
                 const std::vector<Axis>& distinct) {
  const auto first = [&](const auto& axes) {
    return std::ranges::all_of(axes, [&](Axis axis) {
      const bool cut = std::ranges::find(p.shardings, axis, &Sharding::axis) != p.shardings.end();
      return cut || std::ranges::find(distinct, axis) != distinct.end() || mesh.coordinate(axis) == 0;
    });
  };
  return mesh.coordinate(Axis::pp) == p.holders.front() &&
         (of_experts ? first(expert_axes) : first(dense_axes));
}

}  // namespace assay::align
