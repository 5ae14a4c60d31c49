// Tensor parallel (Shoeybi 2019, arXiv 1909.08053). Every rank of tp holds: its rows of the column parallel
// matrices (q, k, v by head; gate, up; its part of the vocabulary), its columns of the row parallel ones (o,
// down), and all of norms, router and MLA's down-projections.
// Collectives over tp: all-reduce SUM of what a row parallel matrix gives, and in backward of the gradient
// of what a column parallel one takes. No scaling. The vocabulary: vocabulary_parallel.cpp.
#include "assay/align/strategies/regions.h"
#include "assay/align/strategies/sequence_parallel.h"

namespace assay::align {

using Kind = Movement::Kind;

std::vector<Sharding> column_parallel() {
  return {{Axis::tp, sharded(0)}};
}
std::vector<Sharding> row_parallel() {
  return {{Axis::tp, sharded(1)}};
}

Value enter_region(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? all_tokens(on, module, x) : sum_gradients(on, module, x);
}

Value all_tokens(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? gather_sequence(on, module, x) : x;
}

Value sum_gradients(Machine& on, const std::string& module, const Value& x) {
  return on.move(module, {Kind::copy, Axis::tp}, x);
}

Value leave_region(Machine& on, const std::string& module, const Value& x) {
  if (on.mesh().parallel().sp) return scatter_sequence(on, module, x);
  return on.move(module, {Kind::all_reduce, Axis::tp}, x);
}

Value split_tokens(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? x : on.move(module, {Kind::split, Axis::tp}, x);
}

Value gather_tokens(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? x : on.move(module, {Kind::all_gather, Axis::tp}, x);
}

MeshPlacement residual_placement(const Mesh& mesh) {
  MeshPlacement placement;
  if (mesh.size(Axis::cp) > 1) placement[Axis::cp] = sharded(0);
  if (mesh.parallel().sp && mesh.size(Axis::tp) > 1) placement[Axis::tp] = sharded(0);
  return placement;
}

}  // namespace assay::align
