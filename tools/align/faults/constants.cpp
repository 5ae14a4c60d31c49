// Constants of another framework, and tails that a kernel forgets.
#include <cmath>

#include "assay/align/faults/catalogue.h"
#include "assay/align/faults/plants.h"
#include "assay/align/step/training_step.h"

namespace assay::align {
namespace {

using namespace plant;

// Rows that a block of so many does not fill.
constexpr std::size_t rows_of_block = 12;

}  // namespace

std::vector<Fault> constant_faults() {
  const std::string_view area = "constants";
  return {
      {"F125",
       area,
       "attention is scaled by the size of a value's head",
       "MS b49b42bb, Mcore#848",
       FaultKind::call,
       {},
       {"forward",
        "*.self_attn output out*",
        "",
        {other_attribute("attention", "scale", 1 / std::sqrt(16.))}},
       change_attributes({"*.self_attn", "attention"},
                         [](const FaultScene& s, const Machine::Node&, Attributes& a) {
                           a.set("scale", 1 / std::sqrt(static_cast<double>(s.model.attention.value_dim)));
                         })},
      {"F126",
       area,
       "the parts with and without positions are split in the wrong order",
       "MS f31e2ca3",
       FaultKind::perm,
       {},
       // The norm of the latents is the first module that is given a piece.
       {"forward", "*.self_attn *|*.self_attn.kv_a_layernorm *", "", {{Cause::shifted, {.shift = -8}}}},
       change_attributes({"*.self_attn", "slice"},
                         [](const FaultScene& s, const Machine::Node& node, Attributes& a) {
                           const double nope = static_cast<double>(s.model.attention.nope_dim),
                                        rope = static_cast<double>(s.model.attention.rope_dim);
                           if (node.inputs.front().value.shape.back() != s.model.attention.query_dim())
                             return;
                           const bool is_rope = a.list("starts").front() == nope;
                           a.set("starts", std::vector<double>{is_rope ? 0 : rope});
                           a.set("ends", std::vector<double>{is_rope ? rope : nope + rope});
                         })},
      {"F128",
       area,
       "rows behind the last whole block are not normalized",
       "MS 93970345",
       FaultKind::call,
       {},
       {"forward",
        "*.input_layernorm output y*",
        "",
        {{Cause::left_out, {.op = "rms_norm", .operand = "x"}}}},
       [](const FaultScene& scene) {
         FaultSites sites;
         const auto input = std::make_shared<std::vector<double>>();
         const Calls norms = {"*.input_layernorm", "rms_norm"};
         sites.before_call = [=](const Moment&, const Machine::Node& node, std::vector<NamedTensor>& inputs,
                                 Attributes&) {
           if (is(node, norms)) *input = find(inputs, "x")->values();
         };
         sites.after_call = [=](const Moment& now, const Machine::Node& node,
                                std::vector<NamedTensor>& results) {
           Tensor* y = is(node, norms) && now.pass != Pass::backward ? find(results, "y") : nullptr;
           if (y == nullptr) return;
           const auto columns = static_cast<std::size_t>(node.inputs.front().value.shape.back());
           const std::size_t whole = input->size() / columns / rows_of_block * rows_of_block;
           *y = changed_open(scene, *y,
                             [&](std::size_t i, double x) { return i / columns < whole ? x : (*input)[i]; });
         };
         return sites;
       }},
      {"F130",
       area,
       "norms have the epsilon of another framework: 1e-5, not 1e-6",
       "Mcore#5750, MB#5712",
       FaultKind::call,
       {.model = "qwen3-moe-tiny"},
       {"forward", "*norm output y*", "", {other_attribute("rms_norm", "eps", 1e-5, 1e-6)}},
       change_attributes({"*norm", "rms_norm"},
                         [](const FaultScene&, const Machine::Node&, Attributes& a) { a.set("eps", 1e-5); })},
      {"F143",
       area,
       "YaRN's mscale is of another framework: cos and sin are scaled, attention is not",
       "MLATransformerConfig against DeepSeek-V3",
       FaultKind::scale,
       {.model = "deepseek-v3-tiny"},
       {"forward",
        "*.self_attn output *",
        "",
        {factor_of(1 + 0.1 * std::log(40.)), {Cause::attribute, {.op = "rope"}}}},
       change_attributes({"*.self_attn", "rope"},
                         [](const FaultScene&, const Machine::Node&, Attributes& a) {
                           a.set("yarn.mscale", 1.0);
                           a.set("yarn.mscale_all_dim", 0.0);
                         })},
  };
}

}  // namespace assay::align
