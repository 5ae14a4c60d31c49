#include "assay/align/step/sum_errors.h"

#include <cmath>

namespace assay::align {
namespace {

bool sums(const std::optional<Movement>& m) {
  return m && (m->kind == Movement::Kind::all_reduce || m->kind == Movement::Kind::reduce_scatter);
}

}  // namespace

double SumError::relative() const {
  const double all = static_cast<double>(n_extra) * u_extra + static_cast<double>(n_wire) * u_wire;
  return all / (1 - all);
}

// What is sent in the dtype in which it was computed is not rounded. A sum that is rounded once is so behind
// its last addition.
SumError sum_error(DType dtype, std::int64_t ranks, RoundSum round) {
  const bool narrow = size_of(dtype) < size_of(DType::float32), once = round == RoundSum::once;
  const double u = unit_roundoff(dtype);
  return {.n_extra = ranks - 1,
          .n_wire = narrow ? ranks + (once ? 1 : 0) : 0,
          .u_extra = narrow && once ? unit_roundoff(DType::float32) : u,
          .u_wire = u};
}

std::vector<SummingCollective> summing_collectives(const Tape& tape, RoundSum round) {
  std::vector<SummingCollective> all;
  for (const Machine::Node& node : tape.nodes()) {
    if (node.kind != Machine::Node::Kind::movement) continue;
    const Value &x = node.inputs.front().value, &y = node.outputs.front().value;
    const DType dtype = tape.tensor(x).dtype();
    const auto add = [&](const Movement& m, bool backward) {
      const auto ranks = static_cast<std::int64_t>(ranks_of(m, tape.mesh()).size());
      all.push_back({node.module, backward, to_string(m), ranks, dtype, sum_error(dtype, ranks, round)});
    };
    if (sums(node.movement)) add(*node.movement, false);
    if (!tape.open_gradient(y)) continue;
    const auto back = adjoint(*node.movement, tape.gradient_placement(y)[node.movement->axis]);
    if (sums(back)) add(*back, true);
  }
  return all;
}

void ReducedGradient::add(const Tensor& magnitude) {
  const bool first = terms.size() == 0;
  terms = first ? magnitude : add_in_order(std::vector{terms, magnitude}, ReduceOrder::ranks);
  if (!first) ++error.n_extra;
}

Tensor magnitudes(const Tensor& t) {
  std::vector<double> values = t.values();
  for (double& x : values) x = std::abs(x);
  return {t.shape(), std::span<const double>(values)};
}

}  // namespace assay::align
