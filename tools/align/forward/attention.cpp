// Multi-head latent attention and grouped-query attention (docs/semantics.md A4, A5), each rank with its
// heads.
#include <cmath>

#include "assay/align/forward/layer_parts.h"
#include "assay/align/placement/token_rows.h"
#include "assay/align/strategies/context_parallel.h"
#include "assay/align/strategies/regions.h"

namespace assay::align {
namespace {

// YaRN's attention factor, m of scale s (arXiv 2309.00071, eq. 22, as DeepSeek-V2 uses it).
double mscale(double scale, double weight) {
  return scale <= 1 ? 1 : 0.1 * weight * std::log(scale) + 1;
}

using Axes = std::vector<double>;

class Attention {
 public:
  Attention(LayerParts& parts, const std::string& module)
      : parts_(parts),
        on_(parts.on),
        a_(parts.model.attention),
        b_(parts.batch),
        module_(module),
        ranks_(on_.mesh().size(Axis::tp)) {}

  Value mla(const Value& x) {
    const Value queries = split_heads(latent_queries(x), a_.heads / ranks_);
    const Value kv = parts_.linear(module_, "kv_a_proj_with_mqa", x, a_.kv_rank + a_.rope_dim);
    const Value latent =
        enter_region(on_, module_, latent_norm("kv_a_layernorm", columns(kv, 0, a_.kv_rank)));
    const Value keys_values = split_heads(
        parts_.column_linear(module_, "kv_b_proj", latent, a_.heads * (a_.nope_dim + a_.value_dim)),
        a_.heads / ranks_);
    const Value rotated = rotate(columns(queries, a_.nope_dim, a_.query_dim()));
    const Value out = attend(beside(columns(queries, 0, a_.nope_dim), rotated),
                             beside(columns(keys_values, 0, a_.nope_dim), shared_key(kv)),
                             columns(keys_values, a_.nope_dim, a_.nope_dim + a_.value_dim));
    return project(out);
  }

  Value gqa(const Value& x) {
    const Value all = enter_region(on_, module_, x);
    const auto heads = [&](const std::string& of, std::int64_t count) {
      const Value split =
          heads_of(parts_.column_linear(module_, of + "_proj", all, count * a_.head_dim), count / ranks_);
      return heads_first(a_.qk_norm && of != "v" ? parts_.norm(module_, of + "_norm", split) : split);
    };
    const Value q = heads("q", a_.heads), k = heads("k", a_.kv_heads), v = heads("v", a_.kv_heads);
    return project(attend(rotate(q), rotate(k), v));
  }

 private:
  Value columns(const Value& x, std::int64_t begin, std::int64_t end) {
    return parts_.columns(module_, x, begin, end);
  }
  Value beside(const Value& a, const Value& b) { return parts_.beside(module_, a, b); }
  Value latent_norm(const std::string& name, const Value& x) {
    return parts_.norm(module_, name, x, a_.latent_norm_eps);
  }
  Value split_heads(const Value& x, std::int64_t heads) { return heads_first(heads_of(x, heads)); }
  // [tokens, heads size] as [length, sequences, heads, size]; of the heads each rank has its own, or all.
  Value heads_of(const Value& x, std::int64_t heads) {
    const Placed& placed = x.placement[Axis::tp];
    const std::int64_t size = x.shape.back() / heads;
    return parts_.reshape(module_, x,
                          b_.batch_first ? Shape{b_.sequences, b_.length, heads, size}
                                         : Shape{b_.length, b_.sequences, heads, size},
                          {{Axis::tp, placed == sharded(1) ? sharded(2) : placed}, {Axis::cp, sharded(0)}});
  }
  // [sequences, heads, length, size]
  Value heads_first(const Value& split) {
    return parts_.permute(module_, split, b_.batch_first ? Axes{0, 2, 1, 3} : Axes{1, 2, 0, 3});
  }
  Value latent_queries(const Value& x) {
    const std::int64_t size = a_.heads * a_.query_dim();
    if (a_.q_rank == 0) return parts_.column_linear(module_, "q_proj", enter_region(on_, module_, x), size);
    const Value latent = latent_norm("q_a_layernorm", parts_.linear(module_, "q_a_proj", x, a_.q_rank));
    return parts_.column_linear(module_, "q_b_proj", enter_region(on_, module_, latent), size);
  }
  // Of all heads: each rank repeats it for its own. Its gradient is the sum over all heads, whole before it
  // is rotated back.
  Value shared_key(const Value& kv) {
    const Value one = all_tokens(on_, module_, columns(kv, a_.kv_rank, a_.kv_rank + a_.rope_dim));
    const Value rotated = sum_gradients(on_, module_, rotate(split_heads(one, 1)));
    return on_.call(module_, "expand", {{"x", rotated}},
                    {{"shape", std::vector<double>{real(b_.sequences), real(a_.heads / ranks_),
                                                   real(b_.length), real(a_.rope_dim)}}},
                    {{Axis::tp, sharded(1)}});
  }
  Value rotate(const Value& x) {
    const Model::Rope& rope = parts_.model.rope;
    Attributes a = {{"base_theta", rope.theta}, {"style", rope.interleaved ? "interleaved" : "half"}};
    if (rope.factor > 1) {
      a.set("yarn.factor", rope.factor);
      a.set("yarn.original_max_position", real(rope.original_positions));
      a.set("yarn.beta_fast", rope.beta_fast);
      a.set("yarn.beta_slow", rope.beta_slow);
      a.set("yarn.mscale", rope.mscale);
      a.set("yarn.mscale_all_dim", rope.mscale_all_dim);
    }
    std::vector<NamedValue> inputs = {{"x", x}};
    if (on_.mesh().size(Axis::cp) > 1) inputs.push_back({"positions", positions()});
    return on_.call(module_, "rope", inputs, a);
  }
  Value positions() {
    const std::int64_t length = b_.length * on_.mesh().size(Axis::cp);
    return on_.derive({}, {b_.length}, MeshPlacement().with(Axis::cp, sharded(0)),
                      [length, mesh = on_.mesh()](const auto&) { return positions_of(mesh, length); });
  }
  Value attend(const Value& q, const Value& k, const Value& v) {
    const double m = mscale(parts_.model.rope.factor, parts_.model.rope.mscale_all_dim);
    return attend_in_parallel(on_, module_, q, k, v, m * m / std::sqrt(real(q.shape.back())));
  }
  Value project(const Value& out) {
    const Value rows = parts_.permute(module_, out, b_.batch_first ? Axes{0, 2, 1, 3} : Axes{2, 0, 1, 3});
    const Value joined = parts_.reshape(module_, rows, {b_.tokens(), out.shape[1] * out.shape[3]},
                                        {{Axis::tp, sharded(1)}, {Axis::cp, sharded(0)}});
    return leave_region(on_, module_, parts_.row_linear(module_, "o_proj", joined, parts_.model.hidden));
  }

  LayerParts& parts_;
  Machine& on_;
  const Model::Attention& a_;
  const Batch& b_;
  const std::string& module_;
  const std::int64_t ranks_;
};

}  // namespace

Value attention(LayerParts& parts, const std::string& module, const Value& x) {
  Attention block(parts, module);
  return parts.model.attention.kind == AttentionKind::mla ? block.mla(x) : block.gqa(x);
}

}  // namespace assay::align
