// Which parameters decay, and by what they are updated.
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step.h"

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
  const FaultConditions dp = {.parallel = "dp=2"};
  return {
      {"F110",
       area,
       "norms decay",
       "verl#5070, #7215, Fast-LLM#542, #545",
       FaultKind::add,
       dp,
       {"optimizer", "*norm param weight*", "", "weight decay"},
       decay("*norm.weight", true)},
      {"F111",
       area,
       "the norms of one class are in the group that decays",
       "bigscience Megatron-DS#262",
       FaultKind::add,
       dp,
       {"optimizer", "*.kv_a_layernorm param weight*", "", "weight decay"},
       decay("*.kv_a_layernorm.weight", true)},
      {"F114",
       area,
       "gradients are unscaled twice",
       "Relax#44, fairseq2#1374",
       FaultKind::scale,
       {.parallel = "dp=2", .precision = "fp16"},
       {"backward", "* grad weight*", "", "actual ="},
       scale_gradient("*", [](const FaultScene& s) { return 1 / s.settings.loss_scaling.initial; })},
      {"F116",
       area,
       "the optimizer's step is 0 again after the first",
       "OpGuard bug 20",
       FaultKind::none,
       dp,
       {"optimizer", "* param *", "", "bias correction|step"},
       change_update("*",
                     [](const FaultScene&, const Moment& now, UpdateSite& site) {
                       if (now.step > 0) site.step = 0;
                     })},
      {"F139",
       area,
       "weight decay is added to the gradient where it should be decoupled",
       "apex mode 0 against 1",
       FaultKind::add,
       dp,
       {"optimizer", "* state *|* param *", "", "decay|L2"},
       optimizer(OptimizerName::adam_l2)},
      {"F140",
       area,
       "Adam without bias correction",
       "mindspore.nn.AdamWeightDecay",
       FaultKind::scale,
       dp,
       {"optimizer", "* param *", "", "bias correction"},
       optimizer(OptimizerName::mindspore_adamw)},
      {"F141",
       area,
       "the group that decays inherits that it does not: no parameter decays",
       "mindformers optimizer_grouped_parameters.py",
       FaultKind::add,
       dp,
       {"optimizer", "* param *", "", "weight decay"},
       decay("*", false)},
  };
}

}  // namespace assay::align
