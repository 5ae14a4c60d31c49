// Positions, and the pieces of sequences that ranks attend to.
#include <algorithm>
#include <cmath>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

using PositionOf = std::function<std::int64_t(const FaultScene&, std::int64_t place, std::int64_t right)>;

// What RoPE takes for the position of each token that a rank has.
PlantFault positions(PositionOf of) {
  return change_inputs({"*.self_attn", "rope"}, [of](const FaultScene& scene, const Moment&,
                                                     const Machine::Node&, auto& inputs) {
    Tensor* known = find(inputs, "positions");
    std::vector<std::int64_t> at;
    if (known != nullptr) {
      at = known->indices();
    } else {
      const std::int64_t length = find(inputs, "x")->shape()[2];
      for (std::int64_t i = 0; i < length; ++i) at.push_back(i);
    }
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = of(scene, static_cast<std::int64_t>(i), at[i]);
    const Tensor wrong = Tensor::from_indices({static_cast<std::int64_t>(at.size())}, at);
    if (known != nullptr)
      *known = wrong;
    else
      inputs.push_back({"positions", wrong});
  });
}

std::int64_t here(const FaultScene& s) {
  return s.settings.batch.length / s.settings.parallel.cp;
}

// Backward all turns of the ring see the keys and values that this rank began with.
PlantFault backward_with_local_keys() {
  return [](const FaultScene&) {
    const auto first =
        std::make_shared<std::map<std::pair<std::int64_t, std::string>, std::pair<Tensor, Tensor>>>();
    FaultSites sites;
    sites.before_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>& inputs,
                            Attributes&) {
      if (!is(node, {"*/ring", "attention"})) return;
      Tensor *k = find(inputs, "k"), *v = find(inputs, "v");
      const auto [at, is_new] = first->try_emplace({now.step * 1000 + now.micro_batch, node.module}, *k, *v);
      if (now.pass == Pass::backward && !is_new) {
        *k = at->second.first;
        *v = at->second.second;
      }
    };
    return sites;
  };
}

// Rows of a rank's piece of the queries' matrix that are of all heads in turn.
PlantFault split_along_hidden() {
  return [](const FaultScene& scene) {
    FaultSites sites;
    sites.parameter = [=](const Moment& now, const std::string& name, Tensor& piece) {
      if (!name.ends_with(".self_attn.q_b_proj.weight") || now.step > 0) return;
      PlannedParameter uncut = scene.plan.at(name);
      uncut.shardings.clear();
      const Tensor whole = loaded_piece(scene.settings, scene.ranks, name, uncut);
      const std::int64_t n = scene.ranks.mesh().size(Axis::tp), me = scene.ranks.mesh().coordinate(Axis::tp);
      std::vector<std::int64_t> rows;
      for (std::int64_t row = me; row < whole.shape().front(); row += n) rows.push_back(row);
      piece = selected_rows(whole, rows);
    };
    return sites;
  };
}

bool is_in_ring(const FaultScene&, const Machine::Node& node) {
  return node.module.ends_with("/ring");
}

}  // namespace

std::vector<Fault> position_faults() {
  const std::string_view area = "position";
  const FaultConditions ring = {.parallel = "cp=2"}, ulysses = {.parallel = "cp=2,context=ulysses"};
  const FaultAnswer rope = {"forward", "*.self_attn output *", "cp", {{Cause::rope_position}}},
                    keys = {"backward", "*.self_attn* grad_*", "cp"};
  return {
      {"F060", area, "the backward of a ring's step gives its gradient to the wrong piece",
       "Mcore#1464, TE#1557; TTrace 13", FaultKind::none, ring, keys,
       skip_movement({"*/ring", Pass::backward, Kind::return_shift, Axis::cp, is_in_ring})},
      {"F061", area, "positions of the second piece of a sequence begin again where the first did",
       "Mcore#5243", FaultKind::perm, ring, rope,
       positions([](const FaultScene& s, std::int64_t place, std::int64_t right) {
         const std::int64_t half = here(s) / 2;
         return place < half ? right : s.ranks.mesh().coordinate(Axis::cp) * half + place - half;
       })},
      {"F062", area, "RoPE counts positions from the beginning of a rank's part of the sequence", "Seq1F1B#6",
       FaultKind::perm, ulysses, rope,
       positions([](const FaultScene&, std::int64_t place, std::int64_t) { return place; })},
      {"F063", area, "positions are contiguous where the data are cut in zigzag", "ISEEKYAN#208",
       FaultKind::perm, ring, rope, positions([](const FaultScene& s, std::int64_t place, std::int64_t) {
         return s.ranks.mesh().coordinate(Axis::cp) * here(s) + place;
       })},
      {"F065",
       area,
       "the reshape behind an all-to-all permutes pieces of the sequence",
       "DS#5664",
       FaultKind::perm,
       ulysses,
       {"forward", "*.self_attn* *", "cp", {{Cause::permuted, {.shift = 8}}}},
       move_otherwise(
           {"*.self_attn", Pass::forward, Kind::all_to_all, Axis::cp, {}},
           [](const FaultScene& scene, const Movement& m, const Tensor& x, const FaultSites::Move& right) {
             const Tensor y = right(m, x);
             const std::int64_t n = scene.ranks.mesh().size(Axis::cp);
             std::vector<Tensor> parts;
             for (std::int64_t k = n; k-- > 0;) parts.push_back(piece_of(y, m.dim, k, n));
             return joined(parts, m.dim);
           })},
      {"F066",
       area,
       "the queries' matrix is split along its rows in turn, not by heads",
       "Paddle FleetX#492",
       FaultKind::perm,
       {.parallel = "tp=2"},
       {"forward", "*.self_attn.q_b_proj output y*", "tp", {{Cause::permuted}}},
       split_along_hidden()},
      {"F068",
       area,
       "lengths are rounded down: attention leaves the last token out",
       "TE#1930",
       FaultKind::zero,
       {},
       {"forward", "*.self_attn output out*", "", {{Cause::zeros}}},
       change_results(
           {"*.self_attn", "attention"},
           [](const FaultScene& scene, const Moment& now, const Machine::Node& node, auto& results) {
             Tensor* out = now.pass == Pass::backward ? nullptr : find(results, "out");
             if (out == nullptr) return;
             const Shape& q = node.inputs.front().value.shape;
             const auto length = static_cast<std::size_t>(q[2]),
                        size = static_cast<std::size_t>(out->shape().back());
             *out = changed_open(scene, *out, [&](std::size_t i, double x) {
               return i / size % length == length - 1 ? 0 : x;
             });
           })},
      {"F070", area, "the backward of a ring takes its own keys and values for every turn",
       "diffusers ring attention", FaultKind::none, ring, keys, backward_with_local_keys()},
      {"F071",
       area,
       "the attention kernel's gradient of the queries is wrong in every other head",
       "TE#1503, #1615; Mcore#1503",
       FaultKind::scale,
       {},
       {"backward",
        "*.self_attn grad_input q*",
        "",
        {{Cause::factor, {.factor = 0.5}}, {Cause::row_factors, {.factor = 0.5}}}},
       change_results(
           {"*.self_attn", "attention"},
           [](const FaultScene& scene, const Moment& now, const Machine::Node& node, auto& results) {
             Tensor* g = now.pass == Pass::backward ? find(results, "grad_q") : nullptr;
             if (g == nullptr) return;
             const Shape& q = node.inputs.front().value.shape;
             const auto of_head = static_cast<std::size_t>(q[2] * q[3]),
                        heads = static_cast<std::size_t>(q[1]);
             *g = changed_open(scene, *g, [&](std::size_t i, double x) {
               return i / of_head % heads % 2 == 1 ? 0.5 * x : x;
             });
           })},
      {"F142", area, "RoPE's offset of a rank's part of the sequence is one too large",
       "Training Report of TeleChat3-MoE", FaultKind::perm, ulysses, rope,
       positions([](const FaultScene& s, std::int64_t, std::int64_t right) {
         return s.ranks.mesh().coordinate(Axis::cp) == 0 ? right : right + 1;
       })},
  };
}

}  // namespace assay::align
