// What is computed again in backward, and otherwise.
#include <map>

#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

const Calls first_norm = {"model.layers.1.input_layernorm", "rms_norm"};

// What the same call gave for the first micro-batch.
PlantFault replay_first_micro_batch() {
  return [](const FaultScene&) {
    const auto first = std::make_shared<std::map<std::int64_t, Tensor>>();
    FaultSites sites;
    sites.after_call = [=](const Moment& now, const Machine::Node& node, std::vector<NamedTensor>& results) {
      if (!is(node, first_norm) || now.pass == Pass::backward) return;
      const auto [at, is_new] = first->try_emplace(now.step, results.front().tensor);
      if (now.pass == Pass::again) results.front().tensor = at->second;
    };
    return sites;
  };
}

}  // namespace

std::vector<Fault> recompute_faults() {
  const std::string_view area = "recompute";
  const FaultConditions full = {.parallel = "recompute=full,dp=2"};
  return {
      {"F083",
       area,
       "every layer of a chunk gets the input of the chunk: it is its last layer alone",
       "Mcore fc2c81d3a6; TTrace 2",
       FaultKind::perm,
       {.parallel = "pp=2,recompute=full"},
       {"forward", "model.layers.0*", "", {{Cause::missing_layer}}},
       [](const FaultScene&) {
         FaultSites sites;
         sites.stage = [](Stage& stage) {
           if (stage.embeds) stage.first = stage.end - 1;
         };
         return sites;
       }},
      {"F084",
       area,
       "under recompute the rotary embedding is passed in the wrong place: there is none",
       "Mcore 0997e33da5",
       FaultKind::perm,
       {.parallel = "recompute=full,dp=2", .model = "qwen3-moe-tiny"},
       {"forward", "*.self_attn output *", "", {{Cause::left_out, {.op = "rope"}}, {Cause::rope_position}}},
       change_inputs({"*.self_attn", "rope"},
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       const std::int64_t length = find(inputs, "x")->shape()[2];
                       const Tensor zeros = Tensor::from_indices(
                           {length}, std::vector<std::int64_t>(static_cast<std::size_t>(length)));
                       if (Tensor* known = find(inputs, "positions"))
                         *known = zeros;
                       else
                         inputs.push_back({"positions", zeros});
                     })},
      {"F085",
       area,
       "recompute takes the activations of another replica",
       "Mcore#7452-F4, #7403",
       FaultKind::call,
       full,
       {"backward", "model.layers.1*", "dp", {{Cause::stale}}},
       change_results(
           first_norm,
           [](const FaultScene& scene, const Moment& now, const Machine::Node&, auto& results) {
             if (now.pass != Pass::again) return;
             const std::vector<int> group = scene.ranks.mesh().group({Axis::dp});
             const auto all = scene.ranks.communicator().all_gather(group, "activations of other replicas",
                                                                    results.front().tensor);
             results.front().tensor =
                 all[(static_cast<std::size_t>(scene.ranks.mesh().coordinate(Axis::dp)) + 1) % all.size()];
           })},
      {"F089",
       area,
       "recompute takes the input of another micro-batch",
       "OpGuard bugs 3 and 11",
       FaultKind::call,
       full,
       {"backward", "model.layers.1*", "", {{Cause::stale, {.micro_batch = 0}}}},
       replay_first_micro_batch()},
  };
}

}  // namespace assay::align
