// Expert parallel (docs/semantics.md D6, D7). Over the same ranks as tp, cp and dp, whose tokens are all
// different here, lie etp, ep and edp. A rank holds experts / ep experts, of each of their matrices 1 / etp;
// edp have the same. The ranks of ep are nodes of `node` ranks:
//   allgather: one rank each; all-gather of tokens and routing over ep, and reduce-scatter SUM back.
//   alltoall: one node; all-to-all of each expert's rows, and back; a token's sum is made where it is.
//   hierarchical: both (TeleChat3-MoE section 4.3); all-gather between nodes, of those tokens the ones for
//   this node's experts, all-to-all of their rows within the node, and back.
// etp: all-gather of tokens over etp before, all-reduce SUM of the rows behind the last matrix, and in
// backward of their gradients before the first: a row is whole wherever it is rounded. Gradients of an expert
// are of all tokens that came to it, and summed over edp. No scaling.
#include "assay/align/strategies/expert_parallel.h"

#include <algorithm>
#include <numeric>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/model/batch.h"

namespace assay::align {
namespace {

using Kind = Movement::Kind;
using Among = Movement::Among;
using Integers = Machine::Integers;

// All tokens of these ranks are different: pieces along the first dimension.
MeshPlacement by_token(const Mesh& mesh) {
  MeshPlacement placement;
  for (const Axis axis : expert_axes) {
    if (mesh.size(axis) > 1) placement[axis] = sharded(0);
  }
  return placement;
}

// Rows come by (rank, expert): where the rows by (expert, rank) are.
Integers by_expert(const Integers& counts, std::size_t ranks) {
  const std::size_t experts = counts.size() / ranks;
  Integers first(counts.size()), order;
  std::exclusive_scan(counts.begin(), counts.end(), first.begin(), std::int64_t{0});
  for (std::size_t e = 0; e < experts; ++e) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t at = r * experts + e;
      for (std::int64_t i = 0; i < counts[at]; ++i) order.push_back(first[at] + i);
    }
  }
  return order;
}

// Sums of `runs` runs of equal length.
Integers sums_of_runs(const Integers& counts, std::size_t runs) {
  const std::size_t each = counts.size() / runs;
  Integers sums(runs);
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i / each] += counts[i];
  return sums;
}

Integers sums_by_expert(const Integers& counts, std::size_t ranks) {
  const std::size_t experts = counts.size() / ranks;
  Integers sums(experts);
  for (std::size_t i = 0; i < counts.size(); ++i) sums[i % experts] += counts[i];
  return sums;
}

}  // namespace

std::vector<Sharding> Dispatcher::column_parallel() {
  return {{Axis::ep, sharded(0)}, {Axis::etp, sharded(1)}};
}
std::vector<Sharding> Dispatcher::row_parallel() {
  return {{Axis::ep, sharded(0)}, {Axis::etp, sharded(2)}};
}

Value Dispatcher::reduce_rows(const Value& y) {
  return on_.move(module_, {Kind::all_reduce, Axis::etp}, y);
}

Value Dispatcher::gather(const Value& x) {
  const Value typed = on_.retype(module_, x, by_token(on_.mesh()));
  const Value of_etp = on_.move(module_, {Kind::all_gather, Axis::etp}, typed);
  return on_.move(module_, {Kind::all_gather, Axis::ep, 0, 0, Among::peers}, of_etp);
}

// Which matrices the experts are, where they move.
Value Dispatcher::at_their_slots(const Value& index) {
  if (on_.mesh().parallel().placement == ExpertPlacement::fixed) return index;
  const Shape flat = {element_count(index.shape)};
  const Value slots =
      on_.derive({on_.view(index, flat), on_.indices(name_of(OfLayer::slots, module_), {experts_})}, flat,
                 index.placement, [](const std::vector<Integers>& given) {
                   Integers chosen = given.front();
                   for (std::int64_t& e : chosen) {
                     if (e >= 0) e = given[1][static_cast<std::size_t>(e)];
                   }
                   return chosen;
                 });
  return on_.view(slots, index.shape);
}

// The choices of this node's experts, numbered from 0; -1 for those of others.
Value Dispatcher::select_of_node(const Value& index) {
  if (nodes() == 1) return index;
  const std::int64_t own = experts_of_node(), first = on_.mesh().coordinate(Axis::ep) / node() * own;
  const Value flat =
      on_.derive({on_.view(index, {element_count(index.shape)})}, {element_count(index.shape)},
                 index.placement.with(Axis::ep, sharded(0)), [=](const std::vector<Integers>& given) {
                   Integers chosen = given.front();
                   for (std::int64_t& e : chosen) e = e >= first && e < first + own ? e - first : -1;
                   return chosen;
                 });
  return on_.view(flat, index.shape);
}

Value Dispatcher::select(const Value& x, const Value& order) {
  return on_.call(module_ + "/dispatch", "index_select", {{"x", x}, {"index", order}});
}

Dispatched Dispatcher::dispatch(Value x, Routed routed, bool with_probs) {
  dense_ = x.placement;
  x = gather(x);
  Dispatched d;
  d.weights = gather(routed.weights);
  d.tokens = x.shape.front();
  const Value index = select_of_node(gather(at_their_slots(routed.index)));
  const std::int64_t choices = element_count(index.shape);
  const Value kept = on_.derive({on_.view(index, {choices})}, {}, {}, [](const std::vector<Integers>& given) {
    return Integers{std::ranges::count_if(given.front(), [](std::int64_t e) { return e >= 0; })};
  });
  const auto permuted = on_.call_all(
      module_, "moe_permute", {{"x", x}, {"index", index}},
      {{"num_experts", experts_of_node()}, {"num_out_tokens", on_.number(kept, choices / nodes())}});
  d.rows = value_named(permuted, "permuted");
  d.sorted_index = value_named(permuted, "sorted_index");
  if (with_probs) {
    // Of a single token its extent does not say that it is the tokens that are cut.
    const Value flat = on_.call(module_, "reshape", {{"x", d.weights}},
                                {{"shape", std::vector<double>{static_cast<double>(choices)}}},
                                shardings_of(d.weights.placement));
    d.probs = on_.call(module_, "index_select", {{"x", flat}, {"index", d.sorted_index}});
  }
  exchange(d, value_named(permuted, "tokens_per_expert"), with_probs);
  d.rows = on_.move(module_, {Kind::copy, Axis::etp}, d.rows);
  if (with_probs) d.probs = on_.move(module_, {Kind::copy, Axis::etp}, d.probs);
  return d;
}

// Rows to the ranks of the node that have their experts.
void Dispatcher::exchange(Dispatched& d, const Value& sizes, bool with_probs) {
  d.sizes = sizes;
  if (node() == 1) return;
  const auto ranks = static_cast<std::size_t>(node());
  const Value counts = on_.move(module_, {Kind::all_to_all, Axis::ep, 0, 0, Among::node}, sizes);
  const auto from = [&](const Value& v, const Shape& shape, auto formula) {
    return on_.derive({v}, shape, v.placement,
                      [=](const std::vector<Integers>& given) { return formula(given.front()); });
  };
  const auto of_runs = [=](const Integers& n) { return sums_of_runs(n, ranks); };
  d.give = from(sizes, {node()}, of_runs);
  d.take = from(counts, {node()}, of_runs);
  const Shape rows = {d.rows.shape.front()};
  const Value order = from(counts, rows, [=](const Integers& n) { return by_expert(n, ranks); });
  d.back_order = from(order, rows, [](const Integers& n) { return inverse(n); });
  d.sizes =
      from(counts, {experts_of_node() / node()}, [=](const Integers& n) { return sums_by_expert(n, ranks); });
  d.rows = select(on_.exchange_rows(module_, d.rows, d.give, d.take), order);
  if (with_probs) d.probs = select(on_.exchange_rows(module_, d.probs, d.give, d.take), order);
}

Value Dispatcher::combine(const Dispatched& d, Value y, bool with_probs) {
  if (node() > 1) y = on_.exchange_rows(module_, select(y, d.back_order), d.take, d.give);
  std::vector<NamedValue> inputs = {{"expert_out", y}, {"sorted_index", d.sorted_index}};
  if (!with_probs) inputs.push_back({"probs", d.weights});
  std::vector<Sharding> declared;
  if (nodes() > 1) declared.push_back({Axis::ep, partial});
  y = on_.call(module_, "moe_unpermute", inputs,
               {{"top_k", d.weights.shape.back()}, {"num_tokens", d.tokens}}, declared);
  y = on_.move(module_, {Kind::reduce_scatter, Axis::ep, 0, 0, Among::peers}, y);
  y = on_.move(module_, {Kind::split, Axis::etp}, y);
  return on_.retype(module_, y, dense_);
}

}  // namespace assay::align
