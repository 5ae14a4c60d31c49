// Sums over ranks that are missing, done twice, or of the wrong ranks.
#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"
#include "assay/align/strategies/data_parallel.h"

namespace assay::align {
namespace {

using namespace plant;

bool is_of_routing(const FaultScene& scene, const Machine::Node& node) {
  const Shape& shape = node.inputs.front().value.shape;
  return !shape.empty() && shape.back() == scene.model.moe.top_k;
}

// The rotated key is [sequences, 1, length, size]; what enters the matrices is [tokens, columns].
bool is_shared_key(const FaultScene&, const Machine::Node& node) {
  return node.inputs.front().value.shape.size() == 4;
}

// The norm, of the shares that each rank has before gradients are reduced.
PlantFault norm_of_shares() {
  return [](const FaultScene& scene) {
    const auto shares = std::make_shared<std::map<std::string, Tensor>>();
    FaultSites sites;
    sites.contribution = [=](const Moment&, const std::string& name, Tensor& open) {
      const auto [sum, first] = shares->try_emplace(name, open);
      if (!first)
        sum->second = scene.ranks.arithmetic().add(std::vector{sum->second, open}, ReduceOrder::ranks);
    };
    sites.norm = [=](double& norm) {
      double squares = 0;
      for (const auto& [name, open] : *shares) {
        for (const double x : scene.ranks.arithmetic().close(open).values()) squares += x * x;
      }
      shares->clear();
      norm = 0;
      for (const Tensor& t :
           scene.ranks.communicator().all_gather(scene.ranks.mesh().all_ranks(), "the norm of shares",
                                                 Tensor({}, std::span<const double>(&squares, 1))))
        norm += t.value(0);
      norm = std::sqrt(norm);
    };
    return sites;
  };
}

// Gradients of tokens whose target another rank of the vocabulary has.
PlantFault drop_foreign_targets() {
  return [](const FaultScene& scene) {
    const auto targets = std::make_shared<std::map<std::int64_t, std::vector<std::int64_t>>>();
    FaultSites sites;
    sites.indices = [=](const Moment& now, const std::string& name, Tensor& t) {
      if (name == "targets") (*targets)[now.micro_batch] = t.indices();
    };
    sites.before_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>& inputs,
                            Attributes&) {
      Tensor* gradient = now.pass == Pass::backward && node.module == "lm_head" && node.is_of("linear")
                             ? find(inputs, "grad_y")
                             : nullptr;
      if (gradient == nullptr) return;
      const std::int64_t columns = gradient->shape().back(),
                         first = columns * scene.ranks.mesh().coordinate(Axis::tp);
      const std::vector<std::int64_t>& of = targets->at(now.micro_batch);
      *gradient = changed(*gradient, [&](std::size_t i, double x) {
        const std::int64_t target = of[i / static_cast<std::size_t>(columns)];
        return target >= first && target < first + columns ? x : 0;
      });
    };
    return sites;
  };
}

// Experts' gradients are summed over the ranks of dp, which hold other shards of them.
PlantFault sum_experts_over_dp() {
  return [](const FaultScene& scene) {
    FaultSites sites;
    sites.gradient = [=](const Moment&, const std::string& name, Tensor& gradient) {
      if (!is_of_experts(name)) return;
      const Arithmetic& arithmetic = scene.ranks.arithmetic();
      gradient = arithmetic.close(scene.ranks.sum(scene.ranks.mesh().group({Axis::dp}),
                                                  "the sum over dp of the gradient of " + name,
                                                  arithmetic.open(gradient)));
    };
    return sites;
  };
}

}  // namespace

std::vector<Fault> reduction_faults() {
  const std::string_view area = "reduction";
  const FaultConditions sp = {.parallel = "tp=2,sp=1"};
  return {
      {"F001",
       area,
       "the final norm's weight gradient is not all-reduced over tp",
       "Mcore#1446; TTrace 12",
       FaultKind::partial,
       sp,
       {"backward", "model.norm grad weight*", "tp", {partial_over("tp")}},
       skip_sum("model.norm.weight", {Axis::tp})},
      {"F002",
       area,
       "the router's weight is not marked as sequence parallel: its gradient is not reduced over tp",
       "Mcore#599, d9f37bacd9; TTrace 6",
       FaultKind::partial,
       sp,
       {"backward", "*.mlp.gate grad weight*", "tp", {partial_over("tp")}},
       skip_sum("*.mlp.gate.weight", {Axis::tp})},
      {"F003",
       area,
       "the gradient of a norm over heads is of this rank's heads only",
       "Mcore#7452-F11",
       FaultKind::partial,
       {.parallel = "tp=2", .model = "qwen3-moe-tiny"},
       {"backward", "*.self_attn.q_norm grad weight*", "tp", {partial_over("tp")}},
       skip_sum("*.self_attn.q_norm.weight", {Axis::tp})},
      {"F004",
       area,
       "RMSNorm weights are not marked as sequence parallel",
       "20b7a5489d",
       FaultKind::partial,
       sp,
       {"backward", "*norm grad weight*", "tp", {partial_over("tp")}},
       skip_sum("*norm.weight", {Axis::tp})},
      {"F005",
       area,
       "a norm's weight gradient is reduced over tp twice",
       "Mcore#1528, TE#1677; TTrace 14",
       FaultKind::scale,
       {.parallel = "tp=2,sp=1,cp=4", .model = "telechat3-105b-tiny"},
       {"backward", "*.input_layernorm grad weight*", "tp", {factor_named("tp")}},
       scale_gradient("*.input_layernorm.weight", tp)},
      {"F006",
       area,
       "the count of tokens that scales the balance loss is all-reduced in place over tp",
       "Mcore#7452-F10, PR#7481",
       FaultKind::scale,
       sp,
       {"backward", "*.mlp* grad_*", "tp", {factor_named("tp")}},
       scale_loss("*.balance", constant(1), tp)},
      {"F007",
       area,
       "the gradient of the router's choices is a rank's own tokens only, taken for replicated",
       "TT#1805, #2387, #4054",
       FaultKind::partial,
       {.parallel = "tp=2,ep=2"},
       {"backward", "*.mlp grad_*", "tp", {partial_over("tp")}},
       move_otherwise(
           {"*.mlp", Pass::backward, Kind::all_gather, Axis::tp, is_of_routing},
           [](const FaultScene& scene, const Movement& m, const Tensor& x, const FaultSites::Move& right) {
             const Tensor whole = right(m, x);
             const std::int64_t n = scene.ranks.mesh().size(Axis::tp),
                                me = scene.ranks.mesh().coordinate(Axis::tp);
             const std::size_t dim = m.dim + scene.ranks.arithmetic().leading();
             std::vector<Tensor> parts;
             for (std::int64_t k = 0; k < n; ++k) {
               const Tensor part = piece_of(whole, dim, k, n);
               parts.push_back(k == me ? part : Tensor(part.dtype(), part.shape()));
             }
             return joined(parts, dim);
           })},
      {"F010",
       area,
       "the norm of the gradients is taken of shares, before they are summed",
       "PT#165962",
       FaultKind::partial,
       {.parallel = "dp=2"},
       {"optimizer", "step loss grad_norm*", "", {{Cause::norm}}},
       norm_of_shares()},
      {"F011",
       area,
       "experts' gradients are placed wrongly under expert parallel: twice too large",
       "PT#160285",
       FaultKind::scale,
       {.parallel = "tp=4,ep=2"},
       {"backward", "*.experts.* grad weight*", "ep", {factor_named("ep")}},
       scale_gradient("*.experts.*", ep)},
      {"F012",
       area,
       "a partial gradient is averaged over tp instead of summed",
       "PT#172932, #173454, #147180",
       FaultKind::scale,
       sp,
       {"backward", "*.kv_a_proj_with_mqa grad weight*", "tp", {factor_named("1/tp")}},
       scale_gradient("*.kv_a_proj_with_mqa.weight", one_over(tp))},
      {"F013",
       area,
       "the partial placement of the latent norm's gradient is lost",
       "TT#2532",
       FaultKind::partial,
       sp,
       {"backward", "*.kv_a_layernorm grad weight*", "tp", {partial_over("tp")}},
       skip_sum("*.kv_a_layernorm.weight", {Axis::tp})},
      {"F014",
       area,
       "the gradient of the router's scores is of local experts only",
       "HF#48205",
       FaultKind::partial,
       {.parallel = "dp=2,ep=2,dispatch=allgather"},
       {"backward", "*.mlp grad_*", "ep", {{Cause::zeros}}},
       skip_movement({"*.mlp", Pass::backward, Kind::reduce_scatter, Axis::ep, is_of_routing})},
      {"F015",
       area,
       "an all-gather without a backward detaches the router",
       "Automodel#2995",
       FaultKind::zero,
       {.parallel = "tp=2,sp=1,ep=2"},
       {"backward", "*.mlp grad_input *", "", {{Cause::zeros}}},
       change_results({"*.mlp", "moe_unpermute"},
                      [](const FaultScene& scene, const Moment& now, const Machine::Node&, auto& results) {
                        Tensor* g = now.pass == Pass::backward ? find(results, "grad_probs") : nullptr;
                        if (g != nullptr) *g = changed_open(scene, *g, [](std::size_t, double) { return 0; });
                      })},
      {"F016",
       area,
       "the vocabulary parallel loss gives no gradient to ranks without the target",
       "ms-swift#9947",
       FaultKind::zero,
       {.parallel = "tp=2"},
       {"backward", "lm_head grad_*", "tp", {{Cause::zeros}, partial_over("tp")}},
       drop_foreign_targets()},
      {"F017",
       area,
       "a reduction returns its input where that is not contiguous: one call's output stays partial",
       "Mcore#5338",
       FaultKind::partial,
       {.parallel = "tp=2"},
       {"forward", "model.layers.1.self_attn.o_proj output y*", "tp", {partial_over("tp")}},
       skip_movement({"model.layers.1.self_attn", Pass::forward, Kind::all_reduce, Axis::tp})},
      {"F019",
       area,
       "experts' gradients are summed over the ranks of dp, which hold other shards",
       "Mcore#1628, #1622, e71b631a44",
       FaultKind::partial,
       {.parallel = "dp=2,etp=2"},
       {"backward", "*.experts.* grad weight*", "", {{Cause::sum_of_pieces, {.of = 2}}}},
       sum_experts_over_dp()},
      {"F021",
       area,
       "tokens are scattered over the wrong ranks: each takes the first piece",
       "Mcore#7452-F7",
       FaultKind::perm,
       sp,
       {"forward", "model.embed_tokens output y*", "tp", {{Cause::repeated}}},
       move_otherwise(
           {"model.embed_tokens*", Pass::forward, Kind::reduce_scatter, Axis::tp},
           [](const FaultScene& scene, const Movement& m, const Tensor& x, const FaultSites::Move& right) {
             Movement whole = m;
             whole.kind = Kind::all_reduce;
             return piece_of(right(whole, x), m.dim + scene.ranks.arithmetic().leading(), 0,
                             scene.ranks.mesh().size(Axis::tp));
           })},
      {"F131",
       area,
       "gradients are not all-reduced over dp",
       "Training Report of TeleChat3-MoE",
       FaultKind::partial,
       {.parallel = "dp=2"},
       {"backward", "* grad weight*", "dp", {partial_over("dp")}},
       skip_sum("*", {Axis::dp, Axis::edp})},
      {"F132",
       area,
       "the gradient of MLA's shared rope key is not reduced over tp",
       "Mcore#1699, PR#6839",
       FaultKind::partial,
       {.parallel = "tp=2"},
       {"backward", "*.self_attn* grad_*", "tp", {partial_over("tp")}},
       skip_movement({"*.self_attn", Pass::backward, Kind::all_reduce, Axis::tp, is_shared_key})},
      {"F149",
       area,
       "the rows that an expert gets from other ranks are offset by one",
       "to seed",
       FaultKind::perm,
       {.parallel = "tp=2,sp=1,ep=2"},
       {"forward",
        "*.mlp.experts.*",
        "ep",
        {{Cause::permuted, {.shift = 1}}, {Cause::shifted, {.shift = 1}}}},
       [](const FaultScene&) {
         FaultSites sites;
         sites.exchanged = [=](const Moment& now, const Machine::Node&, Tensor& rows) {
           const std::int64_t n = rows.shape().empty() ? 0 : rows.shape().front();
           if (now.pass == Pass::backward || n < 2) return;
           rows = joined(std::vector{piece(rows, 0, n - 1, n), piece(rows, 0, 0, n - 1)}, 0);
         };
         return sites;
       }},
      {"F150",
       area,
       "gate and up are cut as one matrix: a rank has all of one of them",
       "MLM's layout of a gated MLP",
       FaultKind::perm,
       {.parallel = "tp=2"},
       {"forward", "*.mlp*gate_proj output y*|*.mlp*gate_proj param*", "tp", {{Cause::other_tensor}}},
       [](const FaultScene& scene) {
         FaultSites sites;
         sites.loaded = [=](const std::string& name, const PlannedParameter& planned, Tensor& piece) {
           const bool gate = name.ends_with(".gate_proj.weight"), up = name.ends_with(".up_proj.weight");
           if (is_of_experts(name) || (!gate && !up)) return;
           const std::size_t at = name.rfind(gate ? "gate_proj" : "up_proj");
           const std::string stem = name.substr(0, at);
           const std::int64_t n = scene.ranks.mesh().size(Axis::tp),
                              me = scene.ranks.mesh().coordinate(Axis::tp);
           // Of the pieces of gate, then of up, a rank takes two neighbours.
           const std::int64_t wanted = 2 * me + (gate ? 0 : 1);
           const std::string from = stem + (wanted < n ? "gate_proj.weight" : "up_proj.weight");
           PlannedParameter uncut = planned;
           uncut.shardings.clear();
           piece = piece_of(loaded_piece(scene.settings, scene.ranks, from, uncut), 0, wanted % n, n);
         };
         return sites;
       }},
  };
}

}  // namespace assay::align
