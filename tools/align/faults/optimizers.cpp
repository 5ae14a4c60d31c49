// Which parameters decay, and by what they are updated.
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

PlantFault decay(std::string parameters, bool is_decayed) {
  return change_update(std::move(parameters),
                       [=](const FaultScene&, const Moment&, UpdateSite& site) { site.decays = is_decayed; });
}

PlantFault optimizer(OptimizerName name) {
  return change_update(
      "*", [=](const FaultScene&, const Moment&, UpdateSite& site) { site.settings.name = name; });
}

}  // namespace

std::vector<Fault> optimizer_faults() {
  const std::string_view area = "optimizer";
  return {
      {"F110",
       area,
       "norms decay",
       "verl#5070, #7215, Fast-LLM#542, #545",
       FaultKind::add,
       {},
       {"optimizer", "*norm param weight*", "", {{Cause::weight_decay, {.reference_value = 0}}}},
       decay("*norm.weight", true)},
      {"F111",
       area,
       "the norms of one class are in the group that decays",
       "bigscience Megatron-DS#262",
       FaultKind::add,
       {},
       {"optimizer", "*.kv_a_layernorm param weight*", "", {{Cause::weight_decay, {.reference_value = 0}}}},
       decay("*.kv_a_layernorm.weight", true)},
      {"F116",
       area,
       "the optimizer's step is 0 again after the first",
       "OpGuard bug 20",
       FaultKind::call,
       {},
       {"optimizer", "* param *", "", {{Cause::bias_correction, {.value = 1, .reference_value = 2}}}},
       change_update("*",
                     [](const FaultScene&, const Moment& now, UpdateSite& site) {
                       if (now.step > 0) site.step = 0;
                     })},
      {"F139",
       area,
       "weight decay is added to the gradient where it should be decoupled",
       "apex mode 0 against 1",
       FaultKind::add,
       {},
       {"optimizer", "* state *|* param *", "", {{Cause::l2_decay}, {Cause::weight_decay}}},
       optimizer(OptimizerName::adam_l2)},
      {"F140",
       area,
       "Adam without bias correction",
       "mindspore.nn.AdamWeightDecay",
       FaultKind::scale,
       {},
       {"optimizer", "* param *", "", {{Cause::bias_correction}}},
       optimizer(OptimizerName::mindspore_adamw)},
      {"F141",
       area,
       "the group that decays inherits that it does not: no parameter decays",
       "mindformers optimizer_grouped_parameters.py",
       FaultKind::add,
       {},
       {"optimizer", "* param *", "", {{Cause::weight_decay, {.value = 0}}}},
       decay("*", false)},
  };
}

}  // namespace assay::align
