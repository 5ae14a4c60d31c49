#include "assay/align/forward.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace assay::align {
namespace {

double real(std::int64_t n) {
  return static_cast<double>(n);
}

// YaRN's attention factor, m of scale s (arXiv 2309.00071, eq. 22, as DeepSeek-V2 uses it).
double mscale(double scale, double weight) {
  return scale <= 1 ? 1 : 0.1 * weight * std::log(scale) + 1;
}

class Forward {
 public:
  Forward(Machine& machine, const Model& m, const Batch& b)
      : on_(machine), m_(m), b_(b), tokens_(b.tokens()) {}

  StepLosses run() {
    Value x = embed("model.embed_tokens", "tokens");
    for (std::int64_t k = 0; k < m_.layers; ++k) x = layer(k, x);
    x = norm("model", "norm", x);
    losses_.total = losses_.cross_entropy = head("lm_head", x, "targets");
    for (std::int64_t depth = 1; depth <= m_.losses.mtp_depth; ++depth) x = predict_further(depth, x);
    for (const auto& [loss, weight] : weighted_)
      losses_.total = add("loss", losses_.total, loss.value, weight);
    return std::move(losses_);
  }

 private:
  Value linear(const std::string& module, const std::string& name, const Value& x, std::int64_t out) {
    const std::string own = module + "." + name;
    const Value w = on_.parameter(own + ".weight", {out, x.shape.back()});
    return on_.call(own, "linear", {{"x", x}, {"w", w}});
  }
  Value norm(const std::string& module, const std::string& name, const Value& x) {
    return norm(module, name, x, m_.norm_eps);
  }
  Value latent_norm(const std::string& module, const std::string& name, const Value& x) {
    const double own = m_.attention.latent_norm_eps;
    return norm(module, name, x, own > 0 ? own : m_.norm_eps);
  }
  Value norm(const std::string& module, const std::string& name, const Value& x, double eps) {
    const std::string own = module + "." + name;
    const Value weight = on_.parameter(own + ".weight", {x.shape.back()});
    return on_.call(own, "rms_norm", {{"x", x}, {"weight", weight}}, {{"eps", eps}});
  }
  Value add(const std::string& module, const Value& a, const Value& b, double alpha = 1) {
    return on_.call(module, "add", {{"a", a}, {"b", b}}, {{"alpha", alpha}});
  }
  Value reshape(const std::string& module, const Value& x, const Shape& shape) {
    return on_.call(module, "reshape", {{"x", x}},
                    {{"shape", std::vector<double>(shape.begin(), shape.end())}});
  }
  // Columns [begin, end) of the last dimension.
  Value columns(const std::string& module, const Value& x, std::int64_t begin, std::int64_t end) {
    return on_.call(module, "slice", {{"x", x}},
                    {{"starts", std::vector<double>{real(begin)}},
                     {"ends", std::vector<double>{real(end)}},
                     {"dims", std::vector<double>{-1}}});
  }
  Value permute(const std::string& module, const Value& x, const std::vector<double>& order) {
    return on_.call(module, "transpose", {{"x", x}}, {{"perm", order}});
  }
  // [tokens, heads size] as [sequences, heads, length, size].
  Value split_heads(const std::string& module, const Value& x, std::int64_t heads) {
    return permute(module, reshape(module, x, {b_.length, b_.sequences, heads, x.shape.back() / heads}),
                   {1, 2, 0, 3});
  }
  Value join_heads(const std::string& module, const Value& x) {
    return reshape(module, permute(module, x, {2, 0, 1, 3}), {tokens_, x.shape[1] * x.shape[3]});
  }
  Value beside(const std::string& module, const Value& a, const Value& b) {
    return on_.call(module, "concat", {{"x_0", a}, {"x_1", b}}, {{"dim", real(-1)}});
  }

  Value embed(const std::string& module, const std::string& tokens) {
    const Value weight = on_.parameter("model.embed_tokens.weight", {m_.vocabulary, m_.hidden});
    return on_.call(module, "embedding", {{"weight", weight}, {"index", on_.indices(tokens, {tokens_})}});
  }
  Value head(const std::string& module, const Value& x, const std::string& targets) {
    const Value w = on_.parameter(m_.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                                  {m_.vocabulary, m_.hidden});
    const Value logits = on_.call(module, "linear", {{"x", x}, {"w", w}});
    return on_.call(module, "cross_entropy",
                    {{"logits", logits}, {"target", on_.indices(targets, {tokens_})}});
  }
  void weigh(const std::string& name, const Value& loss, double weight) {
    losses_.others.push_back({name, loss});
    weighted_.emplace_back(losses_.others.back(), weight);
  }

  // Multi-token prediction (arXiv 2412.19437, section 2.2): the next token's embedding beside what is known.
  Value predict_further(std::int64_t depth, const Value& known) {
    const std::string module = layer_name(m_.layers + depth - 1);
    const Value next = norm(module, "enorm", embed(module, fmt::format("tokens_{}", depth)));
    Value x = linear(module, "eh_proj", beside(module, next, norm(module, "hnorm", known)), m_.hidden);
    x = layer(m_.layers + depth - 1, x);
    x = norm(module + ".shared_head", "norm", x);
    weigh(module + ".shared_head", head(module + ".shared_head", x, fmt::format("targets_{}", depth)),
          m_.losses.mtp_weight / real(m_.losses.mtp_depth));
    return x;
  }

  Value layer(std::int64_t k, const Value& x) {
    const std::string module = layer_name(k), attention = module + ".self_attn", mlp = module + ".mlp";
    Value y = norm(module, "input_layernorm", x);
    y = m_.attention.kind == AttentionKind::mla ? mla(attention, y) : gqa(attention, y);
    if (m_.sandwich_norm) y = norm(module, "post_attention_layernorm", y);
    const Value middle = add(module, x, y);
    y = norm(module, m_.sandwich_norm ? "pre_mlp_layernorm" : "post_attention_layernorm", middle);
    y = m_.has_experts(k) ? moe(mlp, y) : feed_forward(mlp, y, m_.dense_ffn);
    if (m_.sandwich_norm) y = norm(module, "post_mlp_layernorm", y);
    return add(module, middle, y);
  }

  Value mla(const std::string& module, const Value& x) {
    const Model::Attention& a = m_.attention;
    const Value q =
        a.q_rank == 0 ? linear(module, "q_proj", x, a.heads * a.query_dim())
                      : linear(module, "q_b_proj",
                               latent_norm(module, "q_a_layernorm", linear(module, "q_a_proj", x, a.q_rank)),
                               a.heads * a.query_dim());
    const Value queries = split_heads(module, q, a.heads);
    const Value kv = linear(module, "kv_a_proj_with_mqa", x, a.kv_rank + a.rope_dim);
    const Value latent = latent_norm(module, "kv_a_layernorm", columns(module, kv, 0, a.kv_rank));
    const Value keys_values = split_heads(
        module, linear(module, "kv_b_proj", latent, a.heads * (a.nope_dim + a.value_dim)), a.heads);
    const Value shared_key =
        rotate(module, split_heads(module, columns(module, kv, a.kv_rank, a.kv_rank + a.rope_dim), 1));
    const Value key_of_all = on_.call(module, "expand", {{"x", shared_key}},
                                      {{"shape", std::vector<double>{real(b_.sequences), real(a.heads),
                                                                     real(b_.length), real(a.rope_dim)}}});
    const Value rotated = rotate(module, columns(module, queries, a.nope_dim, a.query_dim()));
    const Value out = attend(module, beside(module, columns(module, queries, 0, a.nope_dim), rotated),
                             beside(module, columns(module, keys_values, 0, a.nope_dim), key_of_all),
                             columns(module, keys_values, a.nope_dim, a.nope_dim + a.value_dim));
    return linear(module, "o_proj", join_heads(module, out), m_.hidden);
  }

  Value gqa(const std::string& module, const Value& x) {
    const Model::Attention& a = m_.attention;
    Value q = split_heads(module, linear(module, "q_proj", x, a.heads * a.head_dim), a.heads);
    Value k = split_heads(module, linear(module, "k_proj", x, a.kv_heads * a.head_dim), a.kv_heads);
    const Value v = split_heads(module, linear(module, "v_proj", x, a.kv_heads * a.head_dim), a.kv_heads);
    if (a.qk_norm) {
      q = norm(module, "q_norm", q);
      k = norm(module, "k_norm", k);
    }
    const Value out = attend(module, rotate(module, q), rotate(module, k), v);
    return linear(module, "o_proj", join_heads(module, out), m_.hidden);
  }

  Value rotate(const std::string& module, const Value& x) {
    Attributes a = {{"base_theta", m_.rope.theta}, {"style", m_.rope.interleaved ? "interleaved" : "half"}};
    if (m_.rope.factor > 1) {
      a.set("yarn.factor", m_.rope.factor);
      a.set("yarn.original_max_position", real(m_.rope.original_positions));
      a.set("yarn.beta_fast", m_.rope.beta_fast);
      a.set("yarn.beta_slow", m_.rope.beta_slow);
      a.set("yarn.mscale", m_.rope.mscale);
      a.set("yarn.mscale_all_dim", m_.rope.mscale_all_dim);
    }
    return on_.call(module, "rope", {{"x", x}}, a);
  }
  Value attend(const std::string& module, const Value& q, const Value& k, const Value& v) {
    const double m = mscale(m_.rope.factor, m_.rope.mscale_all_dim);
    return on_.call(module, "attention", {{"q", q}, {"k", k}, {"v", v}},
                    {{"is_causal", true}, {"scale", m * m / std::sqrt(real(q.shape.back()))}});
  }

  Value feed_forward(const std::string& module, const Value& x, std::int64_t size) {
    const Value gate = linear(module, "gate_proj", x, size), up = linear(module, "up_proj", x, size);
    return linear(module, "down_proj", on_.call(module, "swiglu", {{"gate", gate}, {"up", up}}), m_.hidden);
  }

  Value moe(const std::string& module, const Value& x) {
    const Model::Moe& moe = m_.moe;
    const Value logits = linear(module, "gate", x, moe.experts);
    const std::vector<NamedValue> routed = route(module, logits);
    const Value &weights = value_named(routed, "weights"), &index = value_named(routed, "index");
    balance(module, logits, index);
    const auto permuted =
        on_.call_all(module, "moe_permute", {{"x", x}, {"index", index}}, {{"num_experts", moe.experts}});
    const Value &rows = value_named(permuted, "permuted"), &order = value_named(permuted, "sorted_index"),
                &sizes = value_named(permuted, "tokens_per_expert");
    const bool inside = moe.probability_at == ProbabilityAt::activation;
    std::vector<NamedValue> gated = {{"gate", experts(module, "gate_proj", rows, sizes, moe.ffn)},
                                     {"up", experts(module, "up_proj", rows, sizes, moe.ffn)}};
    if (inside) {
      const Value flat = reshape(module, weights, {tokens_ * moe.top_k});
      gated.push_back({"probs", on_.call(module, "index_select", {{"x", flat}, {"index", order}})});
    }
    const Value activation = on_.call(module + ".experts.*", "swiglu", gated);
    std::vector<NamedValue> back = {
        {"expert_out", experts(module, "down_proj", activation, sizes, m_.hidden)}, {"sorted_index", order}};
    if (!inside) back.push_back({"probs", weights});
    const Value out = on_.call(module, "moe_unpermute", back, {{"top_k", moe.top_k}});
    return moe.shared_experts > 0 ? add(module, out, shared(module, x)) : out;
  }

  Value shared(const std::string& module, const Value& x) {
    const Value y = feed_forward(module + ".shared_experts", x, m_.moe.shared_experts * m_.moe.ffn);
    if (!m_.moe.shared_gate) return y;
    const Value gate = on_.call(module, "sigmoid", {{"x", linear(module, "shared_expert_gate", x, 1)}});
    return on_.call(module, "mul", {{"a", y}, {"b", gate}});
  }

  std::vector<NamedValue> route(const std::string& module, const Value& logits) {
    const Model::Moe& moe = m_.moe;
    Attributes a = {{"top_k", moe.top_k},
                    {"score", moe.score == Score::sigmoid ? "sigmoid" : "softmax"},
                    {"pre_softmax", moe.score != Score::softmax_of_chosen},
                    {"normalize", moe.normalize},
                    {"scaling", moe.scale}};
    if (moe.groups > 0) {
      // As DeepSeek-V3 and Hugging Face score a group; Megatron-LM's top_k / top_groups is the same for 8
      // of 4.
      a.set("groups", std::vector<double>{real(moe.groups), real(moe.top_groups)});
      a.set("group_top", 2.0);
    }
    std::vector<NamedValue> inputs = {{"logits", logits}};
    if (moe.bias_rate > 0)
      inputs.push_back(
          {"expert_bias", on_.parameter(module + ".gate.e_score_correction_bias", {moe.experts})});
    return on_.call_all(module, "router_topk", inputs, a);
  }
  Value experts(const std::string& module, const std::string& name, const Value& rows, const Value& sizes,
                std::int64_t out) {
    const std::string own = fmt::format("{}.experts.*.{}", module, name);
    const Value w = on_.parameter(own + ".weight", {m_.moe.experts, out, rows.shape.back()});
    return on_.call(own, "grouped_matmul", {{"x", rows}, {"w", w}, {"group_sizes", sizes}},
                    {{"transpose_weight", true}});
  }

  // Groups of ranks are those of one device here: their loss is the micro-batch's.
  void balance(const std::string& module, const Value& logits, const Value& index) {
    const char* const score = m_.moe.score == Score::sigmoid ? "sigmoid" : "softmax";
    if (m_.losses.balance != BalanceLoss::none) {
      const bool by_sequence = m_.losses.balance == BalanceLoss::sequence;
      const Shape each = {b_.length, b_.sequences};
      const Value z = by_sequence ? reshape(module, logits, {each[0], each[1], m_.moe.experts}) : logits,
                  chosen = by_sequence ? on_.view(index, {each[0], each[1], m_.moe.top_k}) : index;
      weigh(module + ".balance",
            on_.call(module, "moe_aux_loss", {{"logits", z}, {"index", chosen}},
                     {{"top_k", m_.moe.top_k},
                      {"kind", by_sequence ? "sequence" : "micro_batch"},
                      {"score", score}}),
            m_.losses.balance_weight);
    }
    if (m_.losses.z_weight > 0)
      weigh(module + ".z", on_.call(module, "moe_z_loss", {{"logits", logits}}), m_.losses.z_weight);
  }

  static std::string layer_name(std::int64_t k) { return fmt::format("model.layers.{}", k); }

  Machine& on_;
  const Model& m_;
  const Batch b_;
  const std::int64_t tokens_;
  StepLosses losses_;
  std::vector<std::pair<NamedValue, double>> weighted_;
};

}  // namespace

StepLosses forward(Machine& machine, const Model& model, const Batch& batch) {
  return Forward(machine, model, batch).run();
}

}  // namespace assay::align
