#include "assay/operators/engine/activation_attribute.h"
#include "assay/operators/engine/gated_delta.h"

namespace assay {
namespace {

// Letters as in gated_delta.h. C: the channels of all heads of q, then of k, then of v; P: tokens, those of
// the sequence first, as a convolution leaves some behind them. Y: the channels of a, G, or 2 G where it has
// b beside it.
struct QkvGatedDeltaNet : GatedDelta<QkvGatedDeltaNet> {
  static constexpr std::string_view name = "qkv_gated_delta_net";
  static constexpr std::string_view math =
      "out = gated_delta_net(q, k, v, a, b), where f(qkv) has q, k and v side by side, f silu or the "
      "identity";
  static constexpr std::string_view source =
      "arXiv:2412.06464 sec. 3.4; Hugging Face transformers modeling_qwen3_next.py, modeling_qwen3_5.py";
  static constexpr Attribute attributes[] = {
      heads_attribute,
      {"head_v_dim", "null", "V; null: as many channels as a head of q has"},
      {"activation", "\"silu\"", "f: none or silu"},
      beta_attribute,
      scale_attribute,
      eps_attribute};
  static constexpr Arg args[] = {
      {"qkv", "B,C,P", Role::input},
      a_argument,
      b_argument,
      A_log_argument,
      dt_bias_argument,
      {"grad_out", "O*", Role::grad_output},
      {.name = "out", .shape = "O*", .role = Role::output, .terms = "D + chain"},
      {.name = "grad_qkv",
       .shape = "B,C,P",
       .role = Role::grad_input,
       .terms = "V copies + chain + chain + D"},
      grad_a_argument,
      grad_b_argument,
      grad_A_log_argument,
      grad_dt_bias_argument,
  };
  static constexpr Example examples[] = {
      {"B=2,C=12,P=4,T=3,Y=2,G=2"},
      {"B=1,C=10,P=5,T=3,Y=4,G=2", "num_k_heads=1,head_v_dim=2,scale=0.5", "b"},
      {"B=1,C=14,P=3,T=3,Y=4,G=2", "num_k_heads=1,head_v_dim=4,beta_scale=2,activation=\"none\"", "b"}};
  static constexpr std::string_view functional_inputs[] = {"qkv", "a", "b", "A_log", "dt_bias"};

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* qkv = find_input(before, "qkv");
    return next.name != "a" || qkv == nullptr || (next.shape.size() == 3 && next.shape[1] <= qkv->shape[2]);
  }
  // Channels of q and k are what is left.
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape& a = shape_of_input(inputs, "a");
    if (!has_gates(inputs, a) || a[0] * a[1] == 0) return false;
    const std::int64_t G = element_count(shape_of_input(inputs, "A_log")),
                       of_v = element_count(out) / (a[0] * a[1]),
                       rest = shape_of_input(inputs, "qkv")[1] - of_v;
    return element_count(out) % (a[0] * a[1]) == 0 && G > 0 && of_v > 0 && of_v % G == 0 && rest > 0 &&
           rest % 2 == 0;
  }

  // In grad_qkv tokens come last, and the heads of q, k and v one behind the other.
  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims& d,
                                               const Attributes& a) {
    if (output != "grad_qkv") return GatedDelta::steps_apart(output, shape, d, a);
    const std::int64_t C = d.at("C"), P = d.at("P"), K = d.at("K"), of_q = K * d.at("D");
    std::vector<std::int64_t> groups;
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      const std::int64_t c = i / P % C;
      const bool is_v = c >= 2 * of_q;
      const std::int64_t at = is_v ? c - 2 * of_q : c % of_q, channels = is_v ? C - 2 * of_q : of_q;
      groups.push_back(i / P / C * K + at / (channels / K));
    }
    return groups;
  }

  static std::vector<Candidate> candidates(const Attributes& seen, const Recorded& call) {
    const Tensor *a = call.input("a"), *grad_out = call.input("grad_out"), *A_log = call.input("A_log");
    const bool is_known = grad_out != nullptr || call.output == "out";
    if (a == nullptr || A_log == nullptr || !is_known || a->shape().size() != 3) return {};
    const std::int64_t rows = a->shape()[0] * a->shape()[1] * A_log->size();
    if (rows == 0) return {};
    const std::int64_t V = (grad_out != nullptr ? grad_out->size() : call.result.size()) / rows;
    std::vector<Candidate> all = GatedDelta::candidates(seen, call);
    all.push_back({{}, fmt::format("num_k_heads = {}", A_log->size())});
    for (Candidate& c : all) {
      c.attributes.set("head_v_dim", static_cast<double>(V));
      c.text += fmt::format(", head_v_dim = {}", V);
    }
    return all;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_heads(d, inputs, a);
    const Shape &qkv = shape_of_input(inputs, "qkv"), &gates = shape_of_input(inputs, "a");
    const std::int64_t C = qkv[1], K = d.at("K"), G = d.at("G"),
                       V = a.has("head_v_dim") ? a.integer("head_v_dim") : C / (2 * K + G),
                       D = V < 1 || V > C ? 0 : (C - G * V) / (2 * K);
    if (D < 1 || C != 2 * K * D + G * V) {
      throw Error(
          "qkv_gated_delta_net: qkv has {} channels for {} heads of q and k and {} of v with {}; expected "
          "whole heads, of q and k alike",
          C, K, G, V);
    }
    if (gates[1] > qkv[2]) {
      throw Error("qkv_gated_delta_net: qkv has {} tokens and a {}; expected no fewer", qkv[2], gates[1]);
    }
    (void)has_silu(name, a);
    bind_channels(d, inputs, D, V);
  }

  // Each channel of f(qkv) in the operand that it belongs to: f(its place in qkv, its place there).
  template <class T, class F>
  static void each_channel(const Dims& d, DeltaOperands<T>& x, F f) {
    const std::int64_t C = d.at("C"), P = d.at("P"), tokens = d.at("T"), of_q = d.at("K") * d.at("D");
    std::int64_t first = 0;
    for (std::vector<T>* part : {&x.q, &x.k, &x.v}) {
      const std::int64_t channels = part == &x.v ? C - 2 * of_q : of_q;
      part->resize(static_cast<std::size_t>(d.at("B") * tokens * channels), T(0));
      for (std::int64_t i = 0; i < std::ssize(*part); ++i) {
        const std::int64_t row = i / channels, c = first + i % channels;
        f((row / tokens * C + c) * P + row % tokens, (*part)[static_cast<std::size_t>(i)]);
      }
      first += channels;
    }
  }

  template <class T>
  static DeltaOperands<T> operands(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool is_silu = has_silu(name, a);
    const T* qkv = t["qkv"].data();
    DeltaOperands<T> x;
    each_channel(d, x, [&](std::int64_t at, T& to) { to = is_silu ? stored(silu(qkv[at])) : qkv[at]; });
    return x;
  }
  template <class T>
  static void give_back(Tensors<T>& t, const Dims& d, const Attributes& a, DeltaOperands<T> gradients) {
    const bool is_silu = has_silu(name, a);
    const T* qkv = t["qkv"].data();
    T* grad = t["grad_qkv"].data();
    each_channel(d, gradients, [&](std::int64_t at, const T& of_f) {
      grad[at] = is_silu ? stored(of_f) * silu_slope(qkv[at]) : of_f;
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator qkv_gated_delta_net = describe<QkvGatedDeltaNet>();
}

}  // namespace assay
