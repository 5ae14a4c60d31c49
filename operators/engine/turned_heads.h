#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/rotary_attention.h"
#include "assay/operators/engine/wrong_windows.h"

namespace assay {

/// What operators share whose inputs q, k and v [B, L, ..] are attended to by head, after q and k have
/// turned.
struct TurnedHeads {
  static constexpr Attribute head_dim_attribute = {
      "head_dim", "null", "D; null: the last extent of q where it is given by head, else R"};
  static constexpr Attribute heads_first_attribute = {"heads_first", "false", "q and k are [B, heads, L, D]"};
  static constexpr std::string_view causal_along = "L";  // if is_causal, as in its first variant
  static constexpr bool shares_steps = true;
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr std::string_view linear_in = "v";
  static constexpr Steered steered = {"scale", "q", "W"};
  static constexpr Solved solved[] = {
      {.attribute = "scale", .by = Solved::By::bisection, .low = 1e-3, .high = 1e1},
      {.attribute = "head_dim",
       .by = Solved::By::candidates,
       .how = "every divisor of the channels of k, where heads are not apart"},
      alibi_solved};
  static constexpr OtherValues other_values = {"window_size", wrong_windows, windows_by_tokens};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (a.flag("heads_first")) {
      const std::string_view name = arg.name.starts_with("grad_") ? arg.name.substr(5) : arg.name;
      if (name == "q") return "B,Q,L,D";
      if (name == "k") return "B,K,L,D";
    }
    return arg.shape;
  }

  // Where v has the tokens and q has them behind its heads.
  static bool has_heads_first(const Shape& q, const Shape& v) {
    return q.size() == 4 && v.size() > 1 && q[1] != v[1] && q[2] == v[1];
  }
  static void infer(Recorded& call) {
    const Tensor *q = call.input("q"), *v = call.input("v");
    if (q != nullptr && v != nullptr && has_heads_first(q->shape(), v->shape()))
      call.attributes.set("heads_first", true);
    infer_unseen(call);
  }

  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims& d,
                                               const Attributes& a) {
    return by_groups(shape, d, a.flag("heads_first") && (output == "grad_q" || output == "grad_k"));
  }

  // O of Q / D heads with V / (K / D) channels each.
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape& q = shape_of_input(inputs, "q");
    const Shape& k = shape_of_input(inputs, "k");
    const Shape& v = shape_of_input(inputs, "v");
    const bool heads_first = has_heads_first(q, v);
    const std::int64_t Q = channels_by(q, heads_first), K = channels_by(k, heads_first), V = channels_of(v);
    return K > 0 && Q % K == 0 && Q / K * V == channels_of(out) &&
           (q.size() != 4 || (q[3] > 0 && K % q[3] == 0)) && (k.size() != 4 || (k[3] > 0 && Q % k[3] == 0));
  }

  static std::vector<Candidate> candidates(const Attributes& seen, const Recorded& call) {
    std::vector<Candidate> heads;
    const Tensor *q = call.input("q"), *k = call.input("k");
    if (q == nullptr || k == nullptr || (!has_tables(call) && seen.has("style"))) return heads;
    const std::int64_t K = channels_of(k->shape());
    for (std::int64_t D = least_channels(call); D <= K && q->shape().size() == 3; ++D) {
      if (K % D == 0)
        heads.push_back({{{"head_dim", static_cast<double>(D)}}, fmt::format("head_dim = {}", D)});
    }
    return may_have_alibi(seen, call) ? or_with_alibi(std::move(heads)) : heads;
  }

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* v = find_input(before, "v");
    if (next.name == "mask")
      return v == nullptr || mask_goes_with(next.shape, v->shape[0], v->shape[1], v->shape[1]);
    return goes_with_tokens("v", before, next);
  }

  static void bind_heads(std::string_view op, Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &q = shape_of_input(inputs, "q"), &k = shape_of_input(inputs, "k"),
                &v = shape_of_input(inputs, "v");
    if (q.size() < 3 || k.size() < 3 || v.size() < 3) {
      throw Error("{}: q has shape {}, k {}, v {}; expected [B, L, ..]", op, to_string(q), to_string(k),
                  to_string(v));
    }
    const bool heads_first = a.flag("heads_first");
    const std::int64_t R = bind_tables(d, op, inputs, q[0], q[heads_first ? 2 : 1], a);
    if (R == 0 && q.size() != 4 && !a.has("head_dim"))
      throw Error("{}: attribute 'head_dim' is missing; neither heads nor tables show it", op);
    const std::int64_t D = a.has("head_dim") ? a.integer("head_dim") : q.size() == 4 ? q[3] : R;
    const std::int64_t of_q = channels_by(q, heads_first), of_k = channels_by(k, heads_first),
                       of_v = channels_of(v);
    if (D < 1 || D < R || of_q % D != 0 || of_k % D != 0 || of_k == 0 || of_q % of_k != 0 ||
        of_v % (of_k / D) != 0) {
      throw Error(
          "{}: q has {} channels, k {}, v {}, of which {} of {} turn in a head; expected whole "
          "heads, those of k as many as those of v and a divisor of those of q",
          op, of_q, of_k, of_v, R, D);
    }
    const std::int64_t heads = of_q / D, groups = of_k / D, W = of_v / groups;
    d.set("D", D);
    d.set("W", W);
    d.set("heads", heads);
    d.set("groups", groups);
    d.set("rows", heads / groups * q[heads_first ? 2 : 1]);
    d.set("O", Shape{heads * W});
    check_mask(op, inputs, {q[0], heads, q[heads_first ? 2 : 1], q[heads_first ? 2 : 1]});
  }

  template <class T>
  static InnerAttention<T> attention(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t H = d.at("heads"), G = d.at("groups");
    InnerAttention<T> inner = {d, of_attention(a),
                               turned(heads_of(t, "q", d, a, H), t, d, turn_of(d, a), H, false),
                               turned(heads_of(t, "k", d, a, G), t, d, turn_of(d, a), G, false),
                               by_head(t["v"].data(), d, G, d.at("W"), false)};
    inner.take_mask_of(t);
    return inner;
  }
  template <class T>
  static std::vector<T> heads_of(Tensors<T>& t, std::string_view name, const Dims& d, const Attributes& a,
                                 std::int64_t heads) {
    if (a.flag("heads_first")) return t.slot(name).values;
    return by_head(t[name].data(), d, heads, d.at("D"), false);
  }

  template <class T>
  static void give(Tensors<T>& t, std::string_view to, std::vector<T> values) {
    std::ranges::move(values, t[to].data());
  }

  template <class T>
  static void give_out(Tensors<T>& t, const Dims& d, const std::vector<T>& by_heads) {
    give(t, "out", by_head(by_heads.data(), d, d.at("heads"), d.at("W"), true));
  }
  template <class T>
  static void give_gradients(Tensors<T>& t, const Dims& d, const Attributes& a, InnerAttention<T>& inner) {
    const std::int64_t H = d.at("heads"), G = d.at("groups"), D = d.at("D"), W = d.at("W");
    const std::vector<T> q = turned(inner.kept("grad_q"), t, d, turn_of(d, a), H, true),
                         k = turned(inner.kept("grad_k"), t, d, turn_of(d, a), G, true);
    const bool heads_first = a.flag("heads_first");
    give(t, "grad_q", heads_first ? q : by_head(q.data(), d, H, D, true));
    give(t, "grad_k", heads_first ? k : by_head(k.data(), d, G, D, true));
    give(t, "grad_v", by_head(inner.made("grad_v").data(), d, G, W, true));
  }
};

}  // namespace assay
