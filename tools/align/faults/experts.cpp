// Routers, balance losses, and rows of experts.
#include <algorithm>
#include <numeric>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

double tokens_of_sequence(const FaultScene& s) {
  return static_cast<double>(s.settings.batch.length);
}
const Calls routers = {"*.mlp", "router_topk"}, combined = {"*.mlp", "moe_unpermute"};

PlantFault router_attribute(std::string name, AttributeValue value) {
  return change_attributes(
      routers, [=](const FaultScene&, const Machine::Node&, Attributes& a) { a.set(name, value); });
}

// The experts that the logits alone would choose, without groups or bias.
PlantFault balance_plain_choice() {
  return change_inputs({"*.mlp", "moe_aux_loss"}, [](const FaultScene& scene, const Moment&,
                                                     const Machine::Node&, auto& inputs) {
    const Tensor* logits = find(inputs, "logits");
    Tensor* index = find(inputs, "index");
    const std::vector<double> z = logits->values();
    const auto experts = static_cast<std::size_t>(logits->shape().back()),
               k = static_cast<std::size_t>(scene.model.moe.top_k);
    std::vector<std::int64_t> chosen;
    for (std::size_t token = 0; token < z.size() / experts; ++token) {
      std::vector<std::int64_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater<>(), [&](std::int64_t e) {
        return z[token * experts + static_cast<std::size_t>(e)];
      });
      chosen.insert(chosen.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
    }
    *index = Tensor::from_indices(index->shape(), chosen);
  });
}

// Column j of the probabilities in the place of j + 1.
Tensor next_column(const Tensor& t) {
  const auto k = static_cast<std::size_t>(t.shape().back());
  const std::vector<double> x = t.values();
  return changed(t, [&](std::size_t i, double) { return x[i / k * k + (i + 1) % k]; });
}

// The counts that a rank has itself, of those that should be summed over tp.
PlantFault loads_of_rank() {
  return [](const FaultScene& scene) {
    const auto own = std::make_shared<std::map<std::string, std::vector<std::int64_t>>>();
    FaultSites sites;
    sites.own_loads = [=](const std::string& layer, std::vector<std::int64_t>& load) {
      (*own)[layer] = load;
    };
    sites.loads = [=](const std::string& layer, std::vector<std::int64_t>& load) {
      const Tensor mine = Tensor::from_indices({static_cast<std::int64_t>(load.size())}, own->at(layer));
      load =
          scene.ranks.sum_indices(scene.ranks.mesh().group({Axis::dp}), "the loads over dp of " + layer, mine)
              .indices();
    };
    return sites;
  };
}

}  // namespace

std::vector<Fault> expert_faults() {
  const std::string_view area = "experts";
  const FaultConditions sp_ep = {.parallel = "tp=2,sp=1,ep=2"};
  return {
      {"F043",
       area,
       "balance and z losses are not divided by tp before the sum over tokens",
       "Mcore cac8d1a3f0",
       FaultKind::scale,
       {.parallel = "tp=2,sp=1,dp=3", .micro_batches = 3},
       {"backward", "*.mlp* grad_*", "tp", {factor_named("tp")}},
       scale_loss("*.balance", one, tp)},
      {"F048",
       area,
       "the balance loss counts a choice without groups and bias, which is not the one that is dispatched",
       "Mcore 8d5d514003, 79ae157459; Mcore#2767",
       FaultKind::none,
       {.model = "deepseek-v3-tiny"},
       {"forward", "*.mlp output loss*", ""},
       balance_plain_choice()},
      {"F049",
       area,
       "the balance loss is logged in forward and again in recompute",
       "Mcore 7a539c00a3, db035d65ed",
       FaultKind::add,
       {.parallel = "recompute=full,dp=2", .model = "qwen3-moe-tiny"},
       {"forward", "step loss loss*", "", {{Cause::added, {.factor = 1}}}},
       scale_loss("*.balance", constant(2), one)},
      {"F052",
       area,
       "the buffer of experts' outputs is read as if its dimensions were the other way around",
       "DS#8195",
       FaultKind::perm,
       {},
       {"forward", "*.mlp output y*", "", {operand_of("moe_unpermute", "expert_out", {Cause::transposed})}},
       change_inputs(combined,
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       Tensor* rows = find(inputs, "expert_out");
                       const std::vector<double> x = rows->values();
                       const auto n = static_cast<std::size_t>(rows->shape()[0]),
                                  c = static_cast<std::size_t>(rows->shape()[1]);
                       *rows = changed(*rows, [&](std::size_t i, double) { return x[i % n * c + i / n]; });
                     })},
      {"F053",
       area,
       "scores are paired with the wrong experts",
       "HF#45473",
       FaultKind::perm,
       sp_ep,
       {"forward",
        "*.mlp output y*",
        "",
        {operand_of("moe_unpermute", "probs", {Cause::permuted, {.shift = -1}})}},
       change_inputs(combined,
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       if (Tensor* probs = find(inputs, "probs")) *probs = next_column(*probs);
                     })},
      {"F054",
       area,
       "slots of other ranks' experts leak a gradient to the router",
       "HF#48687, #48689",
       FaultKind::add,
       sp_ep,
       {"backward", "*.mlp grad_input *", "", {{Cause::added, {.factor = 1, .positions = {0}}}}},
       change_results(combined,
                      [](const FaultScene& scene, const Moment& now, const Machine::Node&, auto& results) {
                        Tensor* g = now.pass == Pass::backward ? find(results, "grad_probs") : nullptr;
                        if (g == nullptr) return;
                        const std::vector<double> x = scene.ranks.arithmetic().close(*g).values();
                        const auto k = static_cast<std::size_t>(scene.model.moe.top_k);
                        *g = changed_open(scene, *g, [&](std::size_t i, double own) {
                          return i % k == 0 ? own + x[i + k - 1] : own;
                        });
                      })},
      {"F055",
       area,
       "recompute breaks ties between experts otherwise than forward did",
       "TT#3600, Automodel#3140, #3156",
       FaultKind::none,
       {.parallel = "recompute=full,dp=2"},
       // The head is recomputed behind the experts and comes before them in backward.
       {"backward", "*.mlp* grad_*|*.shared_head grad_*", ""},
       change_results(routers,
                      [](const FaultScene& scene, const Moment& now, const Machine::Node&, auto& results) {
                        Tensor* w = now.pass == Pass::again ? find(results, "weights") : nullptr;
                        if (w == nullptr) return;
                        const auto k = static_cast<std::size_t>(scene.model.moe.top_k);
                        const std::vector<double> x = scene.ranks.arithmetic().close(*w).values();
                        const auto of_few = [k](std::size_t i) { return i / k % 4 == 0; };
                        *w = changed_open(scene, *w, [&](std::size_t i, double own) {
                          return of_few(i) ? x[i / k * k + (i + 1) % k] : own;
                        });
                      })},
      {"F056",
       area,
       "the router's bias follows counts that are not summed over tp",
       "TT#4154",
       FaultKind::partial,
       {.parallel = "tp=2,sp=1"},
       {"optimizer", "*.gate param e_score_correction_bias*", "tp", {partial_over("tp")}},
       loads_of_rank()},
      {"F057",
       area,
       "one expert's probability is normalized to 1: the router gets no gradient",
       "minimind#858",
       FaultKind::zero,
       {.model = "telechat3-105b-tiny,moe.top_k=1,moe.normalize=false"},
       {"forward", "*.mlp output weights*", "", {other_attribute("router_topk", "normalize", 1, 0)}},
       router_attribute("normalize", true)},
      {"F059",
       area,
       "the balance loss is scaled by the tokens of the sequence",
       "verl#6836, #6609",
       FaultKind::scale,
       {.parallel = "cp=2"},
       {"backward", "*.mlp* grad_*", "", {{Cause::factor}}},
       scale_loss("*.balance", one, tokens_of_sequence)},
      {"F133",
       area,
       "the balance loss over data parallel is divided by dp twice",
       "Mcore#3672, PR#3769",
       FaultKind::scale,
       {.parallel = "dp=3", .micro_batches = 3},
       {"backward", "*.mlp* grad_*", "dp", {factor_named("1/dp")}},
       scale_loss("*.balance", one, one_over(dp))},
      {"F134",
       area,
       "what scales the balance loss is discarded: it has no gradient",
       "Mcore#1652, #2217; Automodel PR#1412",
       FaultKind::zero,
       {.parallel = "tp=2,sp=1"},
       {"backward", "*.mlp* grad_*", "", {{Cause::zeros}}},
       scale_loss("*.balance", one, constant(0))},
      {"F144",
       area,
       "masked groups of experts take part with a score of 0",
       "HF deepseek_v3",
       FaultKind::call,
       {.model = "deepseek-v3-tiny"},
       {"forward", "*.mlp output *", "", {other_attribute("router_topk", "groups")}},
       router_attribute("groups", std::vector<double>{8, 8})},
      {"F145",
       area,
       "a group's score is its best expert, not the sum of its best two",
       "MLM, HF, TT, DeepSeek-V3",
       FaultKind::call,
       {.model = "deepseek-v3-tiny"},
       {"forward", "*.mlp output *", "", {other_attribute("router_topk", "group_top", 1, 2)}},
       router_attribute("group_top", 1.0)},
      {"F146",
       area,
       "the scores of the chosen experts are not normalized",
       "router variants of moe-training",
       FaultKind::scale,
       {},
       {"forward",
        "*.mlp output weights*",
        "",
        {other_attribute("router_topk", "normalize", 0, 1), {Cause::not_normalized}}},
       router_attribute("normalize", false)},
  };
}

}  // namespace assay::align
