// Roundings that should not take place, or not there.
#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"
#include "assay/dumps/record/glob.h"

namespace assay::align {
namespace {

using namespace plant;

std::vector<Diagnosis> narrow_to(DType d) {
  return {{Cause::precision, {.dtype = d}},
          {Cause::input_precision, {.dtype = d}},
          {Cause::accumulator_precision, {.dtype = d}}};
}

void to_bfloat16(const FaultScene& scene, const Moment&, const std::string&, Tensor& open) {
  open = rounded_open(scene, open, DType::bfloat16);
}

}  // namespace

std::vector<Fault> precision_faults() {
  const std::string_view area = "precision";
  return {
      {"F117",
       area,
       "the all-reduce runs on copies: the optimizer reads gradients that are not reduced",
       "DS#5170",
       FaultKind::partial,
       {.parallel = "dp=2,zero=1"},
       {"backward", "* grad weight*", "dp", {partial_over("dp")}},
       skip_sum("*", {Axis::dp, Axis::edp})},
      {"F118",
       area,
       "gradients of weights are rounded to bfloat16 before they are reduced in float32",
       "Mcore#6624",
       FaultKind::call,
       {},
       {"backward", "* grad weight*", "", narrow_to(DType::bfloat16)},
       change_contribution("*", to_bfloat16)},
      {"F119",
       area,
       "the gradient of a fused cross entropy is rounded to bfloat16",
       "TE#3193",
       FaultKind::call,
       {},
       {"backward", "lm_head grad_*", "", narrow_to(DType::bfloat16)},
       change_inputs({"lm_head", "linear"},
                     [](const FaultScene&, const Moment& now, const Machine::Node&, auto& inputs) {
                       Tensor* g = now.pass == Pass::backward ? find(inputs, "grad_y") : nullptr;
                       if (g != nullptr) *g = rounded(*g, DType::bfloat16);
                     })},
      {"F122",
       area,
       "shares of norms' gradients are rounded to bfloat16 before they are summed",
       "MB#5411",
       FaultKind::call,
       {.parallel = "tp=2,sp=1"},
       {"backward", "*norm grad weight*", "", narrow_to(DType::bfloat16)},
       change_contribution("*norm.weight", to_bfloat16)},
      {"F147",
       area,
       "experts' probabilities are combined in bfloat16",
       "mindformers deredundancy path",
       FaultKind::call,
       {.parallel = "tp=2,sp=1,ep=2"},
       {"forward", "*.mlp output y*", "", narrow_to(DType::bfloat16)},
       change_inputs({"*.mlp", "moe_unpermute"},
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       if (Tensor* probs = find(inputs, "probs")) *probs = rounded(*probs, DType::bfloat16);
                     })},
      {"F152",
       area,
       "a weight is cast to the wrong dtype at one layer",
       "TTrace 10; cf. PR#1126, TE#1047",
       FaultKind::call,
       {},
       {"forward",
        "model.layers.1.self_attn.o_proj output y*",
        "",
        {operand_of("linear", "w", {Cause::input_precision, {.dtype = DType::float8_e4m3fn}})}},
       change_inputs({"model.layers.1.self_attn.o_proj", "linear"},
                     [](const FaultScene&, const Moment&, const Machine::Node&, auto& inputs) {
                       Tensor* w = find(inputs, "w");
                       *w = rounded(*w, DType::float8_e4m3fn);
                     })},
  };
}

}  // namespace assay::align
