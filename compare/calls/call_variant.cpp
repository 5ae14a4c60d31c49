#include "assay/compare/calls/call_variant.h"

#include <fmt/format.h>

#include "assay/compare/calls/fp8_operands.h"
#include "assay/compare/calls/published_values.h"
#include "assay/operators/engine/fp8_codes.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// Values of an attribute that no recorder writes; the first is the operator's default.
struct Choice {
  std::string_view op, attribute;
  std::vector<std::string> values;
};

template <class Values>
std::vector<std::string> texts_of(const Values& values) {
  std::vector<std::string> texts;
  for (const double v : values) texts.push_back(fmt::format("{:.15g}", v));
  return texts;
}

std::vector<std::string> yarn_texts() {
  std::vector<std::string> texts = texts_of(yarn_factors);
  texts.insert(texts.begin(), "null");
  return texts;
}

// Epsilons: 1e-5 TeleChat3, Llama, torch.nn.LayerNorm; 1e-6 Qwen, DeepSeek-V3, T5; 1e-8 the RMSNorm paper's
// code; 1e-12 BERT; 1e-3 Keras; 2^-23 torch.nn.RMSNorm. Any other is fitted
// (JudgedCall::with_fitted_epsilon).
const std::vector<Choice>& choices() {
  static const std::vector<Choice> list = {
      {"rms_norm", "eps", {"1e-5", "1e-6", "1e-8", "1e-12", "1.1920928955078125e-07", "1e-3"}},
      {"layer_norm", "eps", {"1e-5", "1e-6", "1e-8", "1e-12", "1e-3"}},
      {"group_norm", "eps", {"1e-5", "1e-6", "1e-3"}},
      // Halves: Hugging Face, Megatron; interleaved: Meta's and DeepSeek's own code.
      {"rope", "style", {"\"half\"", "\"interleaved\""}},
      {"rope", "base_theta", texts_of(rope_bases)},
      // Torch's [b, h, s, d], Megatron's [s, b, h, d], flash-attention's [b, s, h, d].
      {"rope", "sequence_dim", {"-2", "0", "1"}},
      {"rope", "yarn.factor", yarn_texts()},
      {"rope", "yarn.mscale_all_dim", {"0", "1"}},
      {"attention", "is_causal", {"false", "true"}},
      {"cross_entropy", "reduction", {"\"mean\"", "\"none\"", "\"sum\""}},
      // Mixtral scores by softmax, DeepSeek-V3 by sigmoid, normalised and scaled by 2.5.
      {"router_topk", "score", {"\"softmax\"", "\"sigmoid\""}},
      {"router_topk", "pre_softmax", {"true", "false"}},
      {"router_topk", "normalize", {"true", "false"}},
      {"router_topk", "scaling", {"1", "2.5"}},
      // [experts, in, out], or [experts, out, in] as Megatron and PyTorch store weights.
      {"grouped_matmul", "transpose_weight", {"false", "true"}},
      {"moe_aux_loss", "kind", {"\"micro_batch\"", "\"sequence\""}},
      {"moe_aux_loss", "score", {"\"softmax\"", "\"sigmoid\""}},
      {"softmax", "dim", {"-1", "-2", "1", "0"}},
      {"log_softmax", "dim", {"-1", "-2", "1", "0"}},
      {"reduce_sum", "dims", {"null", "-1", "0"}},
      {"reduce_sum", "keepdim", {"false", "true"}},
      {"reduce_mean", "dims", {"null", "-1", "0"}},
      {"reduce_mean", "keepdim", {"false", "true"}},
      {"gelu", "approximate", {"\"none\"", "\"tanh\""}},
  };
  return list;
}

// torch's [.., heads, tokens, width], Megatron's [s, b, h, d], flash-attention's [b, s, h, d].
const Shape attention_layouts[] = {{}, {1, 2, 0, 3}, {0, 2, 1, 3}};

void add(std::string& text, const std::string& more) {
  text += (text.empty() ? "" : ", ") + more;
}

void add_scaled(std::vector<CallVariant>& variants, CallVariant::Weight weight, const std::string& text) {
  for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
    variants.push_back(variants[i]);
    variants.back().weight = weight;
    add(variants.back().text, text);
  }
}

void add_fp8(std::vector<CallVariant>& variants) {
  for (std::size_t i = 0, count = variants.size(); i < count; ++i) {
    variants.push_back(variants[i]);
    variants.back().fp8 = true;
    add(variants.back().text, fmt::format("float8_e4m3fn operands in blocks of {}", fp8_block));
  }
}

}  // namespace

std::vector<CallVariant> variants_of(const Operator& op) {
  std::vector<CallVariant> variants(1);
  for (const Choice& choice : choices()) {
    if (choice.op != op.name) continue;
    std::vector<CallVariant> wider;
    for (const std::string& value : choice.values) {
      for (CallVariant variant : variants) {
        if (value != choice.values.front()) {
          variant.attributes.set(std::string(choice.attribute), parse_attribute(value));
          add(variant.text, fmt::format("{} = {}", choice.attribute, value));
        }
        wider.push_back(std::move(variant));
      }
    }
    variants = std::move(wider);
  }
  if (op.name.ends_with("_norm")) add_scaled(variants, CallVariant::Weight::plus_one, "weight + 1");
  if (has_fp8_operands(op)) add_fp8(variants);
  if (op.name != "attention") return variants;
  std::vector<CallVariant> laid_out;
  for (const Shape& layout : attention_layouts) {
    for (CallVariant variant : variants) {
      variant.permutation = layout;
      if (!layout.empty()) add(variant.text, layout.front() == 1 ? "[s, b, h, d]" : "[b, s, h, d]");
      laid_out.push_back(std::move(variant));
    }
  }
  return laid_out;
}

std::vector<CallVariant> mistakes_for(const Operator& op, const CallVariant& right) {
  // Positions off by one, and by what sequence-parallel ranks hold.
  constexpr double offsets[] = {1, -1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  std::vector<CallVariant> mistakes;
  for (CallVariant& variant : variants_of(op)) {
    if (variant.text != right.text) mistakes.push_back(std::move(variant));
  }
  if (op.name.ends_with("_norm")) {
    std::vector<CallVariant> bare = {right};
    bare.front().weight = CallVariant::Weight::as_recorded;
    add_scaled(bare, CallVariant::Weight::left_out, "no weight");
    mistakes.push_back(bare.back());
  }
  if (op.name != "rope") return mistakes;
  for (const double offset : offsets) {
    CallVariant variant = right;
    variant.attributes.set("offset", offset);
    add(variant.text, fmt::format("offset = {}", offset));
    mistakes.push_back(std::move(variant));
  }
  return mistakes;
}

const std::vector<Arithmetic>& narrow_arithmetics() {
  static const std::vector<Arithmetic> list = [] {
    std::vector<Arithmetic> all;
    for (const DType d : {DType::hfloat32, DType::tfloat32, DType::float16, DType::bfloat16}) {
      for (const Rounding r : {Rounding::nearest_even, Rounding::toward_zero}) all.push_back({d, r, {}});
    }
    // One after the other, in the tiles of matrix kernels, pairwise.
    for (const DType d : {DType::float16, DType::bfloat16}) {
      for (const std::int64_t block : {0, 16, 32, 64, 128}) {
        all.push_back({});
        all.back().sums = {.block = block, .accumulator = d};
      }
      all.push_back({});
      all.back().sums = {.pairwise = true, .accumulator = d};
    }
    return all;
  }();
  return list;
}

std::string describe(const Arithmetic& a) {
  if (a.inputs)
    return fmt::format("of inputs {} to {}", a.rounding == Rounding::toward_zero ? "truncated" : "rounded",
                       name(*a.inputs));
  return fmt::format("with sums kept in {}, added up {}", name(a.sums.accumulator.value_or(DType::float32)),
                     a.sums.pairwise    ? "pairwise"
                     : a.sums.block > 0 ? fmt::format("in blocks of {}", a.sums.block)
                                        : "one after the other");
}

}  // namespace assay
