// Vocabulary, pipeline stages, and weights that several ranks hold.
#include <fmt/format.h>

#include <cmath>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"
#include "assay/align/strategies/muon.h"
#include "assay/dumps/record/glob.h"

namespace assay::align {
namespace {

using namespace plant;

constexpr std::string_view embedding = "model.embed_tokens.weight";

bool is_last_stage(const FaultScene& s) {
  return s.ranks.mesh().coordinate(Axis::pp) + 1 == s.ranks.mesh().size(Axis::pp);
}

// "model.layers.3.x" of layer 1: "model.layers.1.x".
std::string of_layer_instead(const std::string& name, std::int64_t from, std::int64_t to) {
  const std::string prefix = fmt::format("model.layers.{}.", from);
  return name.starts_with(prefix) ? fmt::format("model.layers.{}.{}", to, name.substr(prefix.size())) : name;
}

PlantFault load_from(std::function<std::string(const FaultScene&, const std::string&)> from) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.loaded = [=](const std::string& name, const PlannedParameter& planned, Tensor& piece) {
      const std::string other = from(scene, name);
      if (other != name) piece = loaded_piece(scene.settings, scene.ranks, other, planned);
    };
    return sites;
  };
}

PlantFault keep_on_last_stage(std::string parameters) {
  return [=](const FaultScene& scene) {
    FaultSites sites;
    sites.after_update = [=](const Moment&, const std::string& name, const Tensor& before, Tensor& after) {
      if (is_last_stage(scene) && glob_match(parameters, name)) after = before;
    };
    return sites;
  };
}

PlantFault change_stage(std::function<void(Stage&)> change) {
  return [=](const FaultScene&) {
    FaultSites sites;
    sites.stage = change;
    return sites;
  };
}

}  // namespace

std::vector<Fault> stage_faults() {
  const std::string_view area = "stages";
  const FaultConditions pp = {.parallel = "pp=2"},
                        tied = {.parallel = "pp=2", .model = "telechat3-105b-tiny,tied_embeddings=true"};
  return {
      {"F073",
       area,
       "logits that are gathered already are summed over the vocabulary's ranks: the loss is log tp too "
       "large",
       "Mcore#7452-F2",
       FaultKind::add,
       {.parallel = "tp=2"},
       {"forward",
        "lm_head output loss*",
        "tp",
        {{Cause::added, {.factor = std::log(2.), .factor_names = {"log tp"}, .term = "a constant"}}}},
       change_inputs({"lm_head/vocabulary", "log"},
                     [](const FaultScene& scene, const Moment&, const Machine::Node&, auto& inputs) {
                       Tensor& x = inputs.front().tensor;
                       x = scaled(x, tp(scene));
                     })},
      {"F075",
       area,
       "layers are divided over stages by a floor: the last of a stage is dropped",
       "Mcore#468, #1304, #1778, #2718; TTrace 7",
       FaultKind::zero,
       pp,
       {"forward", "model.layers.1*", "pp", {{Cause::missing_layer}}},
       change_stage([](Stage& stage) {
         if (stage.embeds) --stage.end;
       })},
      {"F076",
       area,
       "the offset of a virtual stage's layers is wrong: two chunks are exchanged",
       "Mcore#1583, #1584",
       FaultKind::perm,
       {.parallel = "pp=2,vpp=2,schedule=interleaved"},
       {"forward", "model.layers.1*", "pp", {operand_of("rms_norm", "weight", {Cause::other_tensor})}},
       [](const FaultScene& scene) {
         FaultSites sites;
         sites.taken_for = [=](const std::string& name) {
           if (scene.ranks.mesh().coordinate(Axis::pp) != 1) return name;
           const std::string other = of_layer_instead(name, 1, 3);
           return other != name ? other : of_layer_instead(name, 3, 1);
         };
         return sites;
       }},
      {"F077",
       area,
       "queries are scaled by the number of the layer on its stage",
       "Mcore 0504e973d8",
       FaultKind::call,
       pp,
       {"forward",
        "model.layers.2.self_attn output out*",
        "pp",
        {other_attribute("attention", "scale", 3 / std::sqrt(24.))}},
       change_attributes({"*.self_attn", "attention",
                          [](const FaultScene& s, const Moment&, const Machine::Node&) {
                            return s.ranks.mesh().coordinate(Axis::pp) > 0;
                          }},
                         [](const FaultScene&, const Machine::Node&, Attributes& a) {
                           a.set("scale", a.real("scale") * 3);
                         })},
      {"F078",
       area,
       "the head's copy of a tied embedding is not updated",
       "Mcore#656; TTrace 5",
       FaultKind::zero,
       tied,
       {"optimizer", "model.embed_tokens param weight*", "pp", {{Cause::not_updated, {.axis = "pp"}}}},
       keep_on_last_stage(std::string(embedding))},
      {"F079",
       area,
       "the head's copy of a tied embedding gets another optimizer",
       "Mcore#4642, #5034, #4641",
       FaultKind::call,
       tied,
       {"optimizer", "model.embed_tokens *", "pp", {{Cause::bias_correction}}},
       change_update(std::string(embedding),
                     [](const FaultScene& s, const Moment&, UpdateSite& site) {
                       if (is_last_stage(s)) site.settings.name = OptimizerName::mindspore_adamw;
                     })},
      {"F080",
       area,
       "the stage of multi-token prediction is not in the embedding's group: its gradient is missing",
       "MB#5380",
       FaultKind::weights,
       pp,
       {"backward", "model.embed_tokens grad weight*", "pp", {{Cause::added, {.factor = -1}}}},
       change_contribution(std::string(embedding),
                           [](const FaultScene& s, const Moment&, const std::string&, Tensor& open) {
                             if (is_last_stage(s))
                               open = changed_open(s, open, [](std::size_t, double) { return 0; });
                           })},
      {"F081",
       area,
       "a stage is initialized again and forgets the gradients of earlier micro-batches",
       "Automodel#3530",
       FaultKind::weights,
       pp,
       {"backward", "* grad weight*", "", {counted({0, 0, 0, 1}), {Cause::stale}}},
       weigh_micro_batches(
           "*", [](const FaultScene&, std::int64_t m, std::int64_t n) { return m + 1 == n ? 1 : 0; })},
      {"F082",
       area,
       "a checkpoint has layers by their number on the stage: the second stage loads those of the first",
       "Mcore#7452-F12",
       FaultKind::perm,
       {.parallel = "pp=2", .model = "qwen3-moe-tiny"},
       {"forward", "model.layers.2*param*", "pp", {{Cause::other_tensor}}},
       load_from([](const FaultScene& s, const std::string& name) {
         if (s.ranks.mesh().coordinate(Axis::pp) == 0) return name;
         const std::string other = of_layer_instead(name, 2, 0);
         return other != name ? other : of_layer_instead(name, 3, 1);
       })},
      {"F136",
       area,
       "the sum of a tied embedding's gradients is of shards that lie otherwise",
       "Mcore#844",
       FaultKind::none,
       {.parallel = "pp=2,dp=2,zero=1", .model = "telechat3-105b-tiny,tied_embeddings=true"},
       {"backward", "model.embed_tokens grad weight*", "pp"},
       change_contribution(std::string(embedding),
                           [](const FaultScene& s, const Moment&, const std::string&, Tensor& open) {
                             if (!is_last_stage(s)) return;
                             const std::vector<double> x = s.ranks.arithmetic().close(open).values();
                             open = changed_open(s, open, [&](std::size_t i, double) {
                               return x[(i + x.size() / 2) % x.size()];
                             });
                           })},
      {"F151",
       area,
       "rows of other ranks' vocabulary are not masked before the embedding is summed",
       "TTrace 1",
       FaultKind::add,
       {.parallel = "tp=2"},
       {"forward", "model.embed_tokens output y*", "tp", {{Cause::added, {.factor = 1}}}},
       change_inputs({"*/vocabulary", "mul",
                      [](const FaultScene&, const Moment&, const Machine::Node& node) {
                        return node.module.starts_with("model.embed_tokens");
                      }},
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       Tensor* mask = find(inputs, "b");
                       *mask = changed(*mask, [](std::size_t, double) { return 1; });
                     })},
      {"F154",
       area,
       "gate and up are exchanged when a checkpoint is cut for another tp",
       "Mcore PR#520",
       FaultKind::perm,
       {.parallel = "tp=2"},
       {"forward", "*.gate_proj param*|*.up_proj param*", "", {{Cause::other_tensor}}},
       load_from([](const FaultScene&, const std::string& name) {
         std::string other = name;
         const std::size_t gate = name.find(".gate_proj."), up = name.find(".up_proj.");
         if (gate != std::string::npos) other.replace(gate, 11, ".up_proj.");
         if (up != std::string::npos) other.replace(up, 9, ".gate_proj.");
         return other;
       })},
      {"F087",
       area,
       "seeds of expert parallel ranks overlap: they begin with the same experts",
       "Mcore adef0bad92",
       FaultKind::perm,
       {.parallel = "tp=2,sp=1,ep=2"},
       {"forward", "*.experts.* param *", "ep", {{Cause::repeated}}},
       [](const FaultScene& scene) {
         FaultSites sites;
         sites.loaded = [=](const std::string& name, const PlannedParameter& planned, Tensor& own) {
           if (!is_of_experts(name)) return;
           PlannedParameter uncut = planned;
           uncut.shardings.clear();
           own = piece(loaded_piece(scene.settings, scene.ranks, name, uncut), 0, 0, own.shape().front());
         };
         return sites;
       }},
  };
}

}  // namespace assay::align
