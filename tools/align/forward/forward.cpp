#include "assay/align/forward/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/align/forward/layer_parts.h"
#include "assay/align/strategies/regions.h"
#include "assay/align/strategies/vocabulary_parallel.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

class Pass {
 public:
  Pass(Machine& machine, const Model& m, const Batch& local)
      : on_(machine), m_(m), parts_(machine, m, local) {}

  Forward run(const Stage& stage, const std::optional<Value>& given) {
    Value x = stage.embeds ? embed("model.embed_tokens", "tokens") : given.value();
    for (std::int64_t k = stage.first; k < stage.end; ++k) x = layer(k, x);
    if (stage.finishes) finish(x);
    return {x, std::move(losses_)};
  }

 private:
  void finish(Value x) {
    x = parts_.norm("model", "norm", x);
    losses_.insert(losses_.begin(), {"cross_entropy", head("lm_head", x, ""), 1});
    for (std::int64_t depth = 1; depth <= m_.losses.mtp_depth; ++depth) x = predict_further(depth, x);
  }

  Value embed(const std::string& module, const std::string& tokens) {
    return embed_in_parallel(on_, module, indices(tokens), m_.vocabulary, m_.hidden);
  }
  Value indices(const std::string& name) {
    return on_.indices(name, {parts_.batch.tokens()}, {{Axis::cp, sharded(0)}});
  }

  // The mean over all valid targets of the micro-batch; 0 if there are none.
  Value head(const std::string& module, const Value& x, const std::string& depth) {
    const Value w = on_.parameter(m_.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                                  {m_.vocabulary, m_.hidden}, column_parallel());
    const Value shard = on_.call(module, "linear", {{"x", enter_region(on_, module, x)}, {"w", w}});
    const Value losses =
        cross_entropy_in_parallel(on_, module, shard, indices("targets" + depth), m_.vocabulary);
    const Value sum = on_.move(module, {Movement::Kind::all_reduce, Axis::cp},
                               on_.call(module, "reduce_sum", {{"x", losses}}));
    const Value count = on_.derive(
        {on_.indices("valid_targets" + depth, {})}, {}, {},
        [](const auto& given) { return Machine::Integers{std::max<std::int64_t>(1, given.front().front())}; },
        true);
    return on_.call(module, "div", {{"a", sum}, {"b", count}});
  }

  // Multi-token prediction (arXiv 2412.19437, section 2.2): the next token's embedding beside what is known.
  Value predict_further(std::int64_t depth, const Value& known) {
    const std::string module = layer_name(m_.layers + depth - 1), suffix = fmt::format("_{}", depth);
    const Value next = parts_.norm(module, "enorm", embed(module, "tokens" + suffix));
    Value x = parts_.linear(module, "eh_proj",
                            parts_.beside(module, next, parts_.norm(module, "hnorm", known)), m_.hidden);
    x = layer(m_.layers + depth - 1, x);
    x = parts_.norm(module + ".shared_head", "norm", x);
    losses_.push_back({module + ".shared_head", head(module + ".shared_head", x, suffix),
                       m_.losses.mtp_weight / static_cast<double>(m_.losses.mtp_depth)});
    return x;
  }

  Value layer(std::int64_t k, const Value& x) {
    const std::string module = layer_name(k), mlp = module + ".mlp";
    Value y = attention(parts_, module + ".self_attn", parts_.norm(module, "input_layernorm", x));
    if (m_.sandwich_norm) y = parts_.norm(module, "post_attention_layernorm", y);
    const Value middle = parts_.add(module, x, y);
    y = parts_.norm(module, m_.sandwich_norm ? "pre_mlp_layernorm" : "post_attention_layernorm", middle);
    y = m_.has_experts(k) ? experts(parts_, mlp, y, losses_) : parts_.feed_forward(mlp, y, m_.dense_ffn);
    if (m_.sandwich_norm) y = parts_.norm(module, "post_mlp_layernorm", y);
    return parts_.add(module, middle, y);
  }

  static std::string layer_name(std::int64_t k) { return fmt::format("model.layers.{}", k); }

  Machine& on_;
  const Model& m_;
  LayerParts parts_;
  std::vector<Loss> losses_;
};

}  // namespace

Forward forward(Machine& machine, const Model& model, const Batch& batch, const Stage& stage,
                const std::optional<Value>& x) {
  Batch local = batch;
  local.length /= machine.mesh().size(Axis::cp);
  return Pass(machine, model, local).run(stage, x);
}

}  // namespace assay::align
