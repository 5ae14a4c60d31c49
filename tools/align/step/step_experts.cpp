// What a step does by the tokens that its experts get: the bias of routers, where experts are, and the counts
// of balance losses over several micro-batches.
#include <fmt/format.h>

#include <algorithm>

#include "assay/align/step/training_step.h"
#include "assay/align/strategies/data_parallel.h"

namespace assay::align {
namespace {

constexpr std::string_view router = "router_topk", capacity = "moe_capacity_drop";

std::string router_of_layer(const std::string& layer, std::string_view parameter) {
  return fmt::format("{}.gate.{}", layer, parameter);
}

bool is_of_others(const std::string& indices) {
  const std::optional<LayerIndices> known = of_layer(indices);
  return known && known->what == OfLayer::other_tokens;
}

}  // namespace

// How many tokens each expert gets of those that this rank has, by layer: as its router, or what capacity has
// left of its choice, says.
TrainingStep::Loads TrainingStep::loads_of(const Tape& tape, std::string_view op) const {
  Loads loads;
  for (const Machine::Node& node : tape.nodes()) {
    if (!node.is_of(op) || node.is_inside()) continue;
    const bool is_map = op == capacity;
    const Value& chosen = value_named(node.outputs, is_map ? "kept_map" : "index");
    std::vector<std::int64_t>& load = loads[node.module];
    load.resize(static_cast<std::size_t>(model_.moe.experts));
    if (!counts_tokens(chosen.placement)) continue;
    const std::vector<std::int64_t> values = tape.tensor(chosen).indices();
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (is_map)
        load[i % load.size()] += values[i];
      else
        ++load[static_cast<std::size_t>(values[i])];
    }
  }
  return loads;
}

void TrainingStep::add_loads(const Tape& tape) {
  for (const auto& [layer, load] : loads_of(tape, model_.moe.capacity_factor > 0 ? capacity : router)) {
    std::vector<std::int64_t>& all = loads_[layer];
    all.resize(load.size());
    for (std::size_t e = 0; e < load.size(); ++e) all[e] += load[e];
  }
}

// Of ranks with the same tokens the first.
bool TrainingStep::counts_tokens(const MeshPlacement& placement) const {
  return std::ranges::all_of(std::array{Axis::tp, Axis::cp}, [&](Axis axis) {
    return placement[axis] != replicated || mesh().coordinate(axis) == 0;
  });
}

// Over the ranks and the micro-batches of the step.
void TrainingStep::sum_loads() {
  if (model_.moe.bias_rate <= 0 && !moves_experts()) return loads_.clear();
  for (auto& [layer, load] : loads_) {
    if (faults_.own_loads) faults_.own_loads(layer, load);
    const Tensor own = Tensor::from_indices({static_cast<std::int64_t>(load.size())}, load);
    const std::string what = "the loads of " + layer;
    const std::vector<int> holders = holders_of(mesh(), plan_.at(router_of_layer(layer, "weight")));
    load =
        ranks_
            .sum_indices(holders, what + " over pp", ranks_.sum_indices(mesh().group(dense_axes), what, own))
            .indices();
    if (faults_.loads) faults_.loads(layer, load);
  }
}

// The bias of a router follows the load of its experts (docs/semantics.md A7): before the optimizer, and
// without gradient.
void TrainingStep::update_router_biases() {
  for (const auto& [layer, load] : loads_) {
    const std::string name = router_of_layer(layer, "e_score_correction_bias");
    const auto bias = parameters_.find(name);
    if (bias == parameters_.end()) continue;
    const Tensor tokens = Tensor::from_indices({static_cast<std::int64_t>(load.size())}, load);
    const Tensor updated = ranks_.arithmetic().result(
        "expert_bias_update", {{"expert_bias", value_of(name)}, {"tokens_per_expert", tokens}},
        {{"rate", model_.moe.bias_rate}});
    bias->second.value = shards(3) ? shards_of(name).shard(updated) : updated;
  }
}

bool TrainingStep::moves_experts() const {
  return settings_.parallel.placement == ExpertPlacement::dynamic;
}

Tensor TrainingStep::at_home(const std::string& name, const Tensor& piece) const {
  if (!moves_experts() || !is_of_experts(name)) return piece;
  return move_experts(ranks_, name, piece, slots_.at(layer_of_experts(name)), home_slots(model_.moe.experts));
}

void TrainingStep::place_experts() {
  if (!moves_experts()) return;
  for (auto& [name, gradient] : gradients_) {
    if (shards(2)) continue;
    gradient = at_home(name, gradient);
    if (settings_.bound_sums) {
      reduced_[name].value = gradient;
      reduced_[name].terms = at_home(name, reduced_[name].terms);
    }
  }
  std::map<std::string, Slots> next;
  for (const auto& [layer, load] : loads_) next[layer] = slots_by_load(load, settings_.parallel.ep);
  for (auto& held : parameters_) {
    const std::string& name = held.first;
    if (!is_of_experts(name)) continue;
    const std::string layer = layer_of_experts(name);
    const ZeroShards& zero = shards_of(name);
    const auto move = [&](Tensor& t, std::int64_t cut_from) {
      const Tensor moved =
          move_experts(ranks_, name, whole_piece(name, t, cut_from), slots_.at(layer), next.at(layer));
      t = shards(cut_from) ? zero.shard(moved) : moved;
    };
    move(held.second.value, 3);
    for (NamedTensor& state : held.second.state) move(state.tensor, 1);
  }
  for (auto& [layer, slots] : next) slots_[layer] = std::move(slots);
}

// Of micro-batches that count tokens together and are all this rank's, each has to know the others' before it
// is computed: they are routed once for that, which changes nothing.
void TrainingStep::count_ahead(const Action& action) {
  const std::int64_t here = modes_.counted_together / settings_.parallel.dp;
  if (here <= 1 || action.micro_batch % here != 0) return;
  const Stage& stage = pipeline_.stages()[static_cast<std::size_t>(action.stage)];
  const Tensor none = Tensor::from_indices(
      {model_.moe.experts}, std::vector<std::int64_t>(static_cast<std::size_t>(model_.moe.experts)));
  counted_.clear();
  for (std::int64_t m = action.micro_batch; m < action.micro_batch + here; ++m) {
    Tape tape(
        ranks_, [this, m](const Machine::NamedParameter& p) { return used(p.name, m); },
        [&](const std::string& name) { return is_of_others(name) ? none : indices(name, m); });
    align::forward(tape, model_, settings_.batch, stage);
    counted_[m] = loads_of(tape, router);
  }
}

Tensor TrainingStep::counted_by_others(const std::string& layer, std::int64_t micro_batch) const {
  std::vector<std::int64_t> total(static_cast<std::size_t>(model_.moe.experts));
  for (const auto& [m, loads] : counted_) {
    if (m == micro_batch) continue;
    const std::vector<std::int64_t>& load = loads.at(layer);
    for (std::size_t e = 0; e < total.size(); ++e) total[e] += load[e];
  }
  return Tensor::from_indices({model_.moe.experts}, total);
}

}  // namespace assay::align
