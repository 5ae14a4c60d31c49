#include "assay/align/step/expert_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/placement/token_rows.h"

namespace assay::align {
namespace {

using Integers = std::vector<std::int64_t>;
using Node = Machine::Node;
using Kind = Node::Kind;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Placed along etp, ep or edp.
bool is_cut_among_experts(const Value& v) {
  return std::ranges::any_of(expert_axes, [&](Axis axis) { return v.placement[axis] != replicated; });
}

bool only_moves(const Node& node) {
  return node.kind == Kind::movement || node.kind == Kind::retype || node.is_of("reshape");
}

const Node* maker_of(const Tape& tape, const Value& v) {
  for (const Node& node : tape.nodes()) {
    if (node.kind != Kind::whole &&
        std::ranges::any_of(node.outputs, [&](const NamedValue& y) { return y.value.id == v.id; }))
      return &node;
  }
  return nullptr;
}

template <class Which>
const Node* user_of(const Tape& tape, const Value& v, Which which) {
  const auto node = std::ranges::find_if(tape.nodes(), [&](const Node& n) {
    return !n.inputs.empty() && n.inputs.front().value.id == v.id && which(n);
  });
  return node == tape.nodes().end() ? nullptr : &*node;
}

// The rows of the micro-batch, as on a single device, that a rank has of a tensor so placed.
Integers token_rows(const Mesh& mesh, const MeshPlacement& placement, const Batch& batch) {
  Integers rows = token_rows(mesh, batch.sequences, batch.length);
  if (placement[Axis::tp] == replicated) return rows;
  const std::size_t each = rows.size() / at(mesh.size(Axis::tp)),
                    first = at(mesh.coordinate(Axis::tp)) * each;
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(each)};
}

// The experts that the tokens of a rank take, [tokens, choices]; -1: none, where capacity has dropped it.
struct Choice {
  Integers experts;
  std::int64_t choices = 0, of = 0;
  MeshPlacement placement;
};

Choice choice_of(const Tape& tape, const std::string& layer) {
  Choice result;
  for (const Node& node : tape.nodes()) {
    if (node.module != layer) continue;
    if (node.is_of("router_topk")) {
      const Value& index = value_named(node.outputs, "index");
      result = {tape.tensor(index).indices(), index.shape.back(),
                value_named(node.inputs, "logits").shape.back(), index.placement};
    } else if (node.is_of("moe_capacity_drop")) {
      const Value& map = value_named(node.outputs, "kept_map");
      const std::int64_t experts = map.shape.back();
      result = {tape.tensor(map).indices(), experts, experts, map.placement};
      for (std::size_t i = 0; i < result.experts.size(); ++i) {
        std::int64_t& expert = result.experts[i];
        expert = expert != 0 ? static_cast<std::int64_t>(i) % experts : -1;
      }
    }
  }
  return result;
}

// Of all tokens of the micro-batch.
Integers choices_of_all(const Ranks& ranks, const std::string& layer, const Choice& own, const Batch& batch) {
  const std::size_t n = at(own.choices);
  const Integers rows = token_rows(ranks.mesh(), own.placement, batch);
  Integers letter, all(at(batch.tokens()) * n);
  for (std::size_t t = 0; t < rows.size(); ++t) {
    letter.push_back(rows[t]);
    for (std::size_t k = 0; k < n; ++k) letter.push_back(own.experts[t * n + k]);
  }
  const Tensor mine = Tensor::from_indices({static_cast<std::int64_t>(letter.size())}, letter);
  const std::string what = fmt::format("the choices of {} to be recorded", layer);
  for (const Tensor& part :
       ranks.communicator().all_gather(ranks.mesh().group({Axis::tp, Axis::cp}), what, mine)) {
    const Integers numbers = part.indices();
    for (std::size_t i = 0; i < numbers.size(); i += n + 1)
      std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(i) + 1, n,
                  all.begin() + numbers[i] * own.choices);
  }
  return all;
}

// By expert, then place in [tokens, choices]: moe_permute's order.
Integers sorted(const Integers& experts) {
  Integers order;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] >= 0) order.push_back(static_cast<std::int64_t>(i));
  }
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return experts[at(i)]; });
  return order;
}

// What goes with a row: its micro-batch, its place there, and how many rows there are.
constexpr std::int64_t numbers_of_row = 3;

Tensor numbered(std::int64_t micro_batch, const Integers& tokens, std::int64_t choices, const Integers& order,
                std::size_t all) {
  Integers place(all, -1), result;
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<std::int64_t>(i);
  for (const std::int64_t t : tokens) {
    for (std::int64_t k = 0; k < choices; ++k)
      result.insert(result.end(),
                    {micro_batch, place[at(t * choices + k)], static_cast<std::int64_t>(order.size())});
  }
  return Tensor::from_indices({static_cast<std::int64_t>(tokens.size()) * choices, numbers_of_row}, result);
}

std::vector<RowRun> runs(const Tensor& rows) {
  const Integers of = rows.indices();
  const auto number = [&](std::int64_t row, std::int64_t k) { return of[at(row * numbers_of_row + k)]; };
  Integers order(at(rows.shape().front()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::ranges::sort(order, {}, [&](std::int64_t row) { return std::array{number(row, 0), number(row, 1)}; });
  std::vector<RowRun> result;
  for (const std::int64_t row : order) {
    const std::int64_t micro_batch = number(row, 0), place = number(row, 1);
    const bool goes_on = !result.empty() && result.back().micro_batch == micro_batch &&
                         result.back().first + static_cast<std::int64_t>(result.back().here.size()) == place;
    if (!goes_on) result.push_back({micro_batch, place, number(row, 2), {}});
    result.back().here.push_back(row);
  }
  return result;
}

ExpertRows rows_of(const Ranks& ranks, const Tape& tape, const Node& permute, std::int64_t micro_batch,
                   const Batch& batch) {
  const Choice choice = choice_of(tape, permute.module);
  const Integers experts = choices_of_all(ranks, permute.module, choice, batch), order = sorted(experts);
  Integers loads(at(choice.of));
  for (const std::int64_t row : order) ++loads[at(experts[at(row)])];
  ExpertRows result;
  result.sorted_index = Tensor::from_indices({static_cast<std::int64_t>(order.size())}, order);
  result.tokens_per_expert = Tensor::from_indices({choice.of}, loads);

  // The way of the tokens until they are permuted.
  const Value& x = value_named(permute.inputs, "x");
  std::vector<const Node*> way;
  for (const Node* node = maker_of(tape, x); node->kind == Kind::movement;
       node = maker_of(tape, node->inputs.front().value))
    way.push_back(node);
  const MeshPlacement dense = before_experts(tape, x).value().value.placement;
  Tensor rows =
      numbered(micro_batch, token_rows(ranks.mesh(), dense, batch), choice.choices, order, experts.size());
  for (auto node = way.rbegin(); node != way.rend(); ++node)
    rows = ranks.move(*(*node)->movement, permute.module, rows);
  // And of their rows to the experts.
  rows = selected_rows(rows, tape.tensor(value_named(permute.outputs, "sorted_index")).indices());
  result.sent = runs(rows);
  // Where several ranks share a node: rows are exchanged, and put in order by the call behind that.
  const Node* exchange = user_of(tape, value_named(permute.outputs, "permuted"),
                                 [](const Node& n) { return n.kind == Kind::exchange; });
  if (exchange != nullptr) {
    rows = ranks.exchange_rows(permute.module, rows,
                               tape.tensor(value_named(exchange->inputs, "give")).indices(), false);
    const Node* sort =
        user_of(tape, exchange->outputs.front().value, [](const Node& n) { return n.kind == Kind::call; });
    rows = selected_rows(rows, tape.tensor(value_named(sort->inputs, "index")).indices());
  }
  result.held = runs(rows);
  return result;
}

}  // namespace

std::optional<DenseTokens> before_experts(const Tape& tape, const Value& v) {
  for (const Node* node = maker_of(tape, v); node != nullptr && only_moves(*node);
       node = maker_of(tape, node->inputs.front().value)) {
    if (node->kind != Kind::retype) continue;
    const Value& dense = node->inputs.front().value;
    return is_cut_among_experts(dense) ? std::nullopt : std::optional(DenseTokens{dense, node});
  }
  return std::nullopt;
}

std::optional<DenseTokens> behind_experts(const Tape& tape, const Value& v) {
  const auto moves = [](const Node& n) { return n.kind == Kind::movement || n.kind == Kind::retype; };
  for (const Node* node = user_of(tape, v, moves); node != nullptr;
       node = user_of(tape, node->outputs.front().value, moves)) {
    if (node->kind != Kind::retype) continue;
    const Value& dense = node->outputs.front().value;
    return is_cut_among_experts(dense) ? std::nullopt : std::optional(DenseTokens{dense, node});
  }
  return std::nullopt;
}

std::map<std::string, ExpertRows> expert_rows(const Ranks& ranks, const Tape& tape, std::int64_t micro_batch,
                                              const Batch& batch) {
  std::map<std::string, ExpertRows> result;
  for (const Node& node : tape.nodes()) {
    if (node.is_of("moe_permute") && before_experts(tape, value_named(node.inputs, "x")))
      result.emplace(node.module, rows_of(ranks, tape, node, micro_batch, batch));
  }
  return result;
}

}  // namespace assay::align
