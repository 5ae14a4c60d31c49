// Tensor parallel (Shoeybi 2019, arXiv 1909.08053). Every rank of tp holds: its rows of the column parallel
// matrices (q, k, v by head; gate, up; its part of the vocabulary), its columns of the row parallel ones (o,
// down), and all of norms, router and MLA's down-projections.
// Collectives over tp: all-reduce SUM of what a row parallel matrix gives, and in backward of the gradient
// of what a column parallel one takes; all-reduce of embeddings; all-gather of logits. No scaling.
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

Value embed_in_parallel(Machine& on, const std::string& module, const Value& tokens, std::int64_t vocabulary,
                        std::int64_t hidden) {
  const Value weight = on.parameter("model.embed_tokens.weight", {vocabulary, hidden}, column_parallel());
  const std::int64_t ranks = on.mesh().size(Axis::tp);
  if (ranks == 1) return on.call(module, "embedding", {{"weight", weight}, {"index", tokens}});
  const std::int64_t own = vocabulary / ranks, first = own * on.mesh().coordinate(Axis::tp);
  const auto is_own = [=](std::int64_t token) { return token >= first && token < first + own; };
  const auto each = [&](const Shape& shape, auto f, bool real) {
    return on.derive(
        {tokens}, shape, tokens.placement,
        [=](const std::vector<Machine::Integers>& given) {
          Machine::Integers result;
          for (const std::int64_t token : given.front()) result.push_back(f(token));
          return result;
        },
        real);
  };
  const Value index = each(
      tokens.shape, [=](std::int64_t token) { return is_own(token) ? token - first : 0; }, false);
  const Value mask = each(
      {tokens.shape.front(), 1}, [=](std::int64_t token) { return is_own(token) ? 1 : 0; }, true);
  const std::string inside = module + "/vocabulary";
  const std::size_t first_node = on.nodes().size();
  const Value rows = on.call(inside, "embedding", {{"weight", weight}, {"index", index}});
  const Value y = leave_region(on, inside, on.call(inside, "mul", {{"a", rows}, {"b", mask}}));
  on.declare(first_node, module, "embedding", {{"weight", weight}, {"index", tokens}}, {}, {{"y", y}});
  return y;
}

Value gather_vocabulary(Machine& on, const std::string& module, const Value& logits) {
  return on.move(module, {Kind::all_gather, Axis::tp, 1}, logits);
}

Value split_tokens(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? x : on.move(module, {Kind::split, Axis::tp}, x);
}

Value gather_tokens(Machine& on, const std::string& module, const Value& x) {
  return on.mesh().parallel().sp ? x : on.move(module, {Kind::all_gather, Axis::tp}, x);
}

Placement residual_placement(const Mesh& mesh) {
  Placement placement;
  if (mesh.size(Axis::cp) > 1) placement[Axis::cp] = sharded(0);
  if (mesh.parallel().sp && mesh.size(Axis::tp) > 1) placement[Axis::tp] = sharded(0);
  return placement;
}

}  // namespace assay::align
