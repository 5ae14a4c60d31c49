#include "assay/align/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "assay/golden/error.h"

namespace assay {
namespace {

class Forward {
 public:
  Forward(const Model& m, const Batch& b) : m_(m), b_(b), tokens_(b.tokens()) {}

  std::vector<Call> calls() {
    embed("model.embed_tokens");
    for (std::int64_t k = 0; k < m_.layers; ++k) layer(k, m_.has_experts(k));
    norm("model", "norm", {tokens_, m_.hidden});
    head("lm_head");
    for (std::int64_t k = m_.layers; k < m_.layers + m_.losses.mtp_depth; ++k) predict_further(k);
    return std::move(calls_);
  }

 private:
  void call(const std::string& module, std::string_view op, std::vector<CallInput> inputs,
            Attributes attributes = {}) {
    calls_.push_back({module, &find_operator(op), std::move(inputs), std::move(attributes)});
  }
  void linear(const std::string& module, const std::string& name, std::int64_t out, std::int64_t in) {
    call(module, "linear", {{"x", {tokens_, in}}, {"w", {out, in}, module + "." + name + ".weight"}});
  }
  // Normalizes the last extent.
  void norm(const std::string& module, const std::string& name, const Shape& shape) {
    call(module, "rms_norm", {{"x", shape}, {"weight", {shape.back()}, module + "." + name + ".weight"}},
         {{"eps", m_.norm_eps}});
  }

  void embed(const std::string& module) {
    call(module, "embedding",
         {{"weight", {m_.vocabulary, m_.hidden}, "model.embed_tokens.weight"}, {"index", {tokens_}}});
  }
  void head(const std::string& module) {
    call(module, "linear",
         {{"x", {tokens_, m_.hidden}},
          {"w",
           {m_.vocabulary, m_.hidden},
           m_.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"}});
    call(module, "cross_entropy", {{"logits", {tokens_, m_.vocabulary}}, {"target", {tokens_}}});
  }

  // Multi-token prediction (DeepSeek-V3, section 2.2): the next token's embedding beside what is known.
  void predict_further(std::int64_t k) {
    const std::string module = layer_name(k);
    embed(module);
    norm(module, "enorm", {tokens_, m_.hidden});
    norm(module, "hnorm", {tokens_, m_.hidden});
    linear(module, "eh_proj", m_.hidden, 2 * m_.hidden);
    layer(k, m_.moe.experts > 0);
    norm(module + ".shared_head", "norm", {tokens_, m_.hidden});
    head(module + ".shared_head");
  }

  void layer(std::int64_t k, bool with_experts) {
    const std::string module = layer_name(k);
    const Shape stream = {tokens_, m_.hidden};
    norm(module, "input_layernorm", stream);
    m_.attention.kind == AttentionKind::mla ? mla(module + ".self_attn") : gqa(module + ".self_attn");
    if (m_.sandwich_norm) norm(module, "post_attention_layernorm", stream);
    norm(module, m_.sandwich_norm ? "pre_mlp_layernorm" : "post_attention_layernorm", stream);
    with_experts ? moe(module + ".mlp") : feed_forward(module + ".mlp", m_.dense_ffn);
    if (m_.sandwich_norm) norm(module, "post_mlp_layernorm", stream);
  }

  void mla(const std::string& module) {
    const Model::Attention& a = m_.attention;
    if (a.q_rank > 0) {
      linear(module, "q_a_proj", a.q_rank, m_.hidden);
      norm(module, "q_a_layernorm", {tokens_, a.q_rank});
      linear(module, "q_b_proj", a.heads * a.query_dim(), a.q_rank);
    } else {
      linear(module, "q_proj", a.heads * a.query_dim(), m_.hidden);
    }
    linear(module, "kv_a_proj_with_mqa", a.kv_rank + a.rope_dim, m_.hidden);
    norm(module, "kv_a_layernorm", {tokens_, a.kv_rank});
    linear(module, "kv_b_proj", a.heads * (a.nope_dim + a.value_dim), a.kv_rank);
    rotate(module, a.heads, a.rope_dim);
    rotate(module, 1, a.rope_dim);
    attend(module, a.heads);
    linear(module, "o_proj", m_.hidden, a.heads * a.value_dim);
  }

  void gqa(const std::string& module) {
    const Model::Attention& a = m_.attention;
    linear(module, "q_proj", a.heads * a.head_dim, m_.hidden);
    linear(module, "k_proj", a.kv_heads * a.head_dim, m_.hidden);
    linear(module, "v_proj", a.kv_heads * a.head_dim, m_.hidden);
    if (a.qk_norm) {
      norm(module, "q_norm", {tokens_, a.heads, a.head_dim});
      norm(module, "k_norm", {tokens_, a.kv_heads, a.head_dim});
    }
    rotate(module, a.heads, a.head_dim);
    rotate(module, a.kv_heads, a.head_dim);
    attend(module, a.kv_heads);
    linear(module, "o_proj", m_.hidden, a.heads * a.head_dim);
  }

  void rotate(const std::string& module, std::int64_t heads, std::int64_t size) {
    Attributes a = {{"base_theta", m_.rope.theta}, {"style", m_.rope.interleaved ? "interleaved" : "half"}};
    if (m_.rope.factor > 1) {
      a.set("yarn.factor", m_.rope.factor);
      a.set("yarn.original_max_position", static_cast<double>(m_.rope.original_positions));
      a.set("yarn.beta_fast", m_.rope.beta_fast);
      a.set("yarn.beta_slow", m_.rope.beta_slow);
      a.set("yarn.mscale", m_.rope.mscale);
      a.set("yarn.mscale_all_dim", m_.rope.mscale_all_dim);
    }
    call(module, "rope", {{"x", {b_.sequences, heads, b_.length, size}}}, std::move(a));
  }
  void attend(const std::string& module, std::int64_t kv_heads) {
    const Model::Attention& a = m_.attention;
    const auto heads = [&](std::int64_t count, std::int64_t size) {
      return Shape{b_.sequences, count, b_.length, size};
    };
    call(module, "attention",
         {{"q", heads(a.heads, a.query_dim())},
          {"k", heads(kv_heads, a.query_dim())},
          {"v", heads(kv_heads, a.output_dim())}},
         {{"is_causal", true}});
  }

  void feed_forward(const std::string& module, std::int64_t size) {
    linear(module, "gate_proj", size, m_.hidden);
    linear(module, "up_proj", size, m_.hidden);
    call(module, "swiglu", {{"gate", {tokens_, size}}, {"up", {tokens_, size}}});
    linear(module, "down_proj", m_.hidden, size);
  }

  void moe(const std::string& module) {
    const Model::Moe& moe = m_.moe;
    const std::int64_t rows = tokens_ * moe.top_k;
    linear(module, "gate", moe.experts, m_.hidden);
    route(module);
    call(module, "moe_permute", {{"x", {tokens_, m_.hidden}}, {"index", {tokens_, moe.top_k}}},
         {{"num_experts", moe.experts}});
    experts(module, "gate_proj", moe.ffn, m_.hidden);
    experts(module, "up_proj", moe.ffn, m_.hidden);
    std::vector<CallInput> gated = {{"gate", {rows, moe.ffn}}, {"up", {rows, moe.ffn}}};
    if (moe.probability_at == ProbabilityAt::activation) gated.push_back({"probs", {rows}});
    call(module + ".experts", "swiglu", std::move(gated));
    experts(module, "down_proj", m_.hidden, moe.ffn);
    std::vector<CallInput> back = {{"expert_out", {rows, m_.hidden}}, {"sorted_index", {rows}}};
    if (moe.probability_at == ProbabilityAt::output) back.push_back({"probs", {tokens_, moe.top_k}});
    call(module, "moe_unpermute", std::move(back), {{"top_k", moe.top_k}});
    if (moe.shared_experts == 0) return;
    feed_forward(module + ".shared_experts", moe.shared_experts * moe.ffn);
    if (moe.shared_gate) linear(module, "shared_expert_gate", 1, m_.hidden);
  }

  void route(const std::string& module) {
    const Model::Moe& moe = m_.moe;
    Attributes a = {{"top_k", moe.top_k},
                    {"score", moe.score == Score::sigmoid ? "sigmoid" : "softmax"},
                    {"pre_softmax", moe.score != Score::softmax_of_chosen},
                    {"normalize", moe.normalize},
                    {"scaling", moe.scale}};
    if (moe.groups > 0)
      a.set("groups",
            std::vector<double>{static_cast<double>(moe.groups), static_cast<double>(moe.top_groups)});
    std::vector<CallInput> inputs = {{"logits", {tokens_, moe.experts}}};
    if (moe.bias_rate > 0)
      inputs.push_back({"expert_bias", {moe.experts}, module + ".gate.e_score_correction_bias"});
    call(module, "router_topk", std::move(inputs), std::move(a));
  }
  void experts(const std::string& module, const std::string& name, std::int64_t out, std::int64_t in) {
    const std::int64_t count = m_.moe.experts, rows = tokens_ * m_.moe.top_k;
    call(module + ".experts", "grouped_matmul",
         {{"x", {rows, in}},
          {"w", {count, out, in}, fmt::format("{}.experts.*.{}.weight", module, name)},
          {"group_sizes", {count}}},
         {{"transpose_weight", true}});
  }

  static std::string layer_name(std::int64_t k) { return fmt::format("model.layers.{}", k); }

  const Model& m_;
  const Batch b_;
  const std::int64_t tokens_;
  std::vector<Call> calls_;
};

std::int64_t elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Rows in groups of equal size, but for one.
Tensor even_groups(std::int64_t rows, std::int64_t groups) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups), rows / groups);
  for (std::int64_t k = 0; k < rows % groups; ++k) ++sizes[static_cast<std::size_t>(k)];
  return Tensor::from_indices({groups}, sizes);
}

}  // namespace

std::vector<Call> forward_calls(const Model& model, const Batch& batch) {
  return Forward(model, batch).calls();
}

std::vector<Parameter> parameters(const Model& model) {
  std::vector<Parameter> all;
  for (const Call& call : forward_calls(model, {})) {
    for (const CallInput& input : call.inputs) {
      if (input.parameter.empty()) continue;
      const std::int64_t size = elements(input.shape);
      const bool routed = input.parameter.find('*') != std::string::npos;
      const bool looked_up = call.op->name == "embedding";
      const std::int64_t met = routed      ? size / model.moe.experts * model.moe.top_k
                               : looked_up ? model.hidden
                                           : size;
      const auto known = std::ranges::find(all, input.parameter, &Parameter::name);
      if (known == all.end()) {
        all.push_back({input.parameter, input.shape, size, met});
      } else {
        known->met_by_token = std::max(known->met_by_token, met);
      }
    }
  }
  return all;
}

std::vector<Accumulation> accumulations(const Call& call) {
  std::vector<InputShape> inputs;
  Tensor groups;
  for (const CallInput& input : call.inputs) {
    const bool sizes = input.arg == "group_sizes";
    if (sizes) groups = even_groups(call.inputs.front().shape.front(), input.shape.front());
    inputs.push_back({input.arg, input.shape, sizes ? &groups : nullptr});
  }
  std::vector<Accumulation> counts;
  for (const Arg& arg : call.op->args) {
    const bool wanted = arg.role == Role::output || arg.role == Role::grad_input;
    const std::string_view of = arg.role == Role::grad_input ? arg.name.substr(5) : arg.name;
    const bool there = arg.role == Role::output || find_input(inputs, of) != nullptr;
    if (!wanted || !there || arg.terms.empty()) continue;
    const std::int64_t count = accumulation_count(*call.op, arg.name, inputs, call.attributes);
    if (count > 0) counts.push_back({std::string(arg.name), count});
  }
  return counts;
}

}  // namespace assay
