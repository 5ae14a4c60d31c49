#include "assay/operators/engine/gated_delta.h"

namespace assay {
namespace {

// Letters as in gated_delta.h; Q*, C* and X*: the channels of all heads of q, k and v. Y: those of a, G, or
// 2 G where it has b beside it.
struct GatedDeltaNet : GatedDelta<GatedDeltaNet> {
  static constexpr std::string_view name = "gated_delta_net";
  static constexpr std::string_view math =
      "out = linear_attention(q / |q|, k / |k|, v, decay = -exp(A_log) softplus(a + dt_bias), beta = "
      "sigmoid(b))";
  static constexpr std::string_view source =
      "arXiv:2412.06464 eq. 10 and sec. 3.4; Hugging Face transformers modeling_olmo_hybrid.py";
  static constexpr Attribute attributes[] = {heads_attribute, beta_attribute, scale_attribute, eps_attribute};
  static constexpr Arg args[] = {
      {"q", "B,T,Q*", Role::input},
      {"k", "B,T,C*", Role::input},
      {"v", "B,T,X*", Role::input},
      a_argument,
      b_argument,
      A_log_argument,
      dt_bias_argument,
      {"grad_out", "O*", Role::grad_output},
      {.name = "out", .shape = "O*", .role = Role::output, .terms = "D + chain"},
      {.name = "grad_q", .shape = "B,T,Q*", .role = Role::grad_input, .terms = "V copies + chain + D"},
      {.name = "grad_k",
       .shape = "B,T,C*",
       .role = Role::grad_input,
       .terms = "V copies + chain + chain + D"},
      {.name = "grad_v", .shape = "B,T,X*", .role = Role::grad_input, .terms = "D + chain"},
      grad_a_argument,
      grad_b_argument,
      grad_A_log_argument,
      grad_dt_bias_argument,
  };
  static constexpr Example examples[] = {{"B=2,T=3,Q=4,C=4,X=6,Y=2,G=2"},
                                         {"B=1,T=4,Q=1x3,C=3,X=2x2,Y=4,G=2", "num_k_heads=1,scale=0.5", "b"},
                                         {"B=1,T=3,Q=4,C=2x2,X=4,Y=4,G=4", "num_k_heads=2,beta_scale=2"}};
  static constexpr std::string_view functional_inputs[] = {"q", "k", "v", "a", "b", "A_log", "dt_bias"};
  static constexpr std::string_view linear_in = "v";

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* q = find_input(before, "q");
    return next.name != "k" || q == nullptr || element_count(q->shape) == element_count(next.shape);
  }
  static bool may_make(InputShapes inputs, const Shape& out) {
    return has_gates(inputs, shape_of_input(inputs, "a")) &&
           element_count(out) == element_count(shape_of_input(inputs, "v"));
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_heads(d, inputs, a);
    const auto channels = [&](std::string_view of) {
      const Shape& x = shape_of_input(inputs, of);
      return element_count(Shape(x.begin() + 2, x.end()));
    };
    const std::int64_t q = channels("q"), k = channels("k"), v = channels("v"), K = d.at("K"), G = d.at("G");
    if (q != k || q == 0 || q % K != 0 || v == 0 || v % G != 0) {
      throw Error(
          "gated_delta_net: q has {} channels, k {} and v {}, for {} heads of q and k and {} of v; expected "
          "whole heads, of k as many as of q",
          q, k, v, K, G);
    }
    bind_channels(d, inputs, q / K, v / G);
  }

  template <class T>
  static DeltaOperands<T> operands(Tensors<T>& t, const Dims&, const Attributes&) {
    return {t.slot("q").values, t.slot("k").values, t.slot("v").values};
  }
  template <class T>
  static void give_back(Tensors<T>& t, const Dims&, const Attributes&, const DeltaOperands<T>& gradients) {
    give(t, "grad_q", gradients.q);
    give(t, "grad_k", gradients.k);
    give(t, "grad_v", gradients.v);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gated_delta_net = describe<GatedDeltaNet>();
}

}  // namespace assay
