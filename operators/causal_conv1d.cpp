#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// C channels, each with a filter of its own over the last W tokens; P = W - 1 tokens before the first, zeros
// where no past_state is given.
struct CausalConv1d {
  static constexpr std::string_view name = "causal_conv1d";
  static constexpr std::string_view math =
      "y_t = f(bias + sum over w of weight_w x_(t - W + 1 + w)), f the identity or silu";
  static constexpr std::string_view source =
      "Mamba arXiv:2312.00752 sec. 3.4; causal_conv1d_fn of Dao-AILab; names of ONNX CausalConvWithState";
  static constexpr std::string_view aliases[] = {"causal_conv1d_fn", "CausalConvWithState",
                                                 "npu_causal_conv1d"};
  static constexpr Attribute attributes[] = {{"activation", "\"none\"", "f: none or silu"}};
  static constexpr Arg args[] = {
      {"x", "B*,C,T", Role::input},
      {"weight", "C,W", Role::param},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {.name = "past_state", .shape = "B*,C,P", .role = Role::input, .optional = true},
      {"grad_y", "B*,C,T", Role::grad_output},
      {.name = "grad_present_state", .shape = "B*,C,P", .role = Role::grad_output, .optional = true},
      {.name = "y", .shape = "B*,C,T", .role = Role::output, .terms = "W + bias"},
      {.name = "present_state", .shape = "B*,C,P", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "B*,C,T", .role = Role::grad_input, .terms = "W + state"},
      {.name = "grad_weight", .shape = "C,W", .role = Role::grad_input, .terms = "B T"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "B T"},
      {.name = "grad_past_state",
       .shape = "B*,C,P",
       .role = Role::grad_input,
       .optional = true,
       .terms = "W + state"},
  };
  static constexpr Example examples[] = {
      {"B=2,C=3,T=7,W=4", "activation=\"silu\"", "past_state,grad_present_state"},
      {"B=2,C=2,T=5,W=3,P=2", "activation=\"silu\""},
      {"B=1,C=3,T=2,W=4,P=3", "", "bias"},
      {"B=,C=2,T=6,W=2", "", "bias,past_state,grad_present_state"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const std::int64_t W = shape_of_input(inputs, "weight")[1];
    if (W < 1) throw Error("causal_conv1d: weight has no taps; expected at least 1");
    const std::string& f = a.text("activation");
    if (f != "none" && f != "silu")
      throw Error("causal_conv1d: activation is \"{}\"; expected none or silu", f);
    d.set("B", Shape(x.begin(), x.end() - 2));
    d.set("P", W - 1);
    d.set("bias", find_input(inputs, "bias") != nullptr ? 1 : 0);
    d.set("state", find_input(inputs, "grad_present_state") != nullptr ? 1 : 0);
  }

  // One channel of one sequence, its past before it.
  template <class T>
  struct Line {
    Line(Tensors<T>& t, const Dims& d, std::int64_t b, std::int64_t channel)
        : c(channel),
          tokens(d.at("T")),
          W(d.at("W")),
          P(d.at("P")),
          at(b * d.at("C") + c),
          x(t["x"].data() + at * tokens),
          past(t.has("past_state") ? t["past_state"].data() + at * P : nullptr),
          weight(t["weight"].data() + c * W),
          bias(t.has("bias") ? t["bias"].data() + c : nullptr) {}
    /// -P <= i < tokens
    T operator()(std::int64_t i) const { return i >= 0 ? x[i] : past != nullptr ? past[i + P] : T(0); }
    T filtered(std::int64_t i) const {
      const std::int64_t terms = bias == nullptr ? W : W + 1;
      return sum<T>(terms, [&](std::int64_t w) { return w < W ? weight[w] * (*this)(i - P + w) : *bias; });
    }
    std::int64_t c, tokens, W, P, at;
    const T *x, *past, *weight, *bias;
  };

  template <class T, class F>
  static void each_line(Tensors<T>& t, const Dims& d, F f) {
    const std::int64_t C = d.at("C");
    each_in_parallel(d.at("B") * C, grain_of(2 * d.at("T") * d.at("W")),
                     [&](std::int64_t i) { f(Line<T>(t, d, i / C, i % C)); });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool gates = a.text("activation") == "silu";
    T *y = t["y"].data(), *present = t["present_state"].data();
    each_line(t, d, [&](const Line<T>& line) {
      for (std::int64_t i = 0; i < line.tokens; ++i) {
        const T z = line.filtered(i);
        y[line.at * line.tokens + i] = gates ? silu<T>(z) : z;
      }
      for (std::int64_t p = 0; p < line.P; ++p)
        present[line.at * line.P + p] = line(line.tokens - line.P + p);
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool gates = a.text("activation") == "silu";
    const T *g = t["grad_y"].data(), *of_present = t.optional("grad_present_state").data();
    T *grad_x = t["grad_x"].data(), *grad_past = t.optional("grad_past_state").data();
    const std::int64_t B = d.at("B"), C = d.at("C"), tokens = d.at("T"), W = d.at("W"), P = d.at("P");
    std::vector<T> of_sums(static_cast<std::size_t>(B * C * tokens), T(0));
    each_line(t, d, [&](const Line<T>& line) {
      T* of_sum = of_sums.data() + line.at * tokens;
      for (std::int64_t i = 0; i < tokens; ++i) {
        const T& of_y = g[line.at * tokens + i];
        of_sum[i] = gates ? of_y * silu_slope<T>(line.filtered(i)) : of_y;
      }
      // Token i is the term w of token i + P - w, and of the present state the element i - tokens + P.
      const auto gradient = [&](std::int64_t i) {
        const std::int64_t p = i - tokens + P;
        const bool is_kept = of_present != nullptr && p >= 0;
        return sum<T>(is_kept ? W + 1 : W, [&](std::int64_t w) {
          if (w == W) return of_present[line.at * P + p];
          const std::int64_t to = i + P - w;
          return to >= 0 && to < tokens ? line.weight[w] * of_sum[to] : T(0);
        });
      };
      for (std::int64_t i = 0; i < tokens; ++i) grad_x[line.at * tokens + i] = gradient(i);
      for (std::int64_t p = 0; p < P && grad_past != nullptr; ++p)
        grad_past[line.at * P + p] = gradient(p - P);
    });
    T *grad_weight = t["grad_weight"].data(), *grad_bias = t.optional("grad_bias").data();
    each_in_parallel(C, grain_of(2 * B * tokens * W), [&](std::int64_t c) {
      const auto of_sum = [&](std::int64_t i) {
        return of_sums[static_cast<std::size_t>((i / tokens * C + c) * tokens + i % tokens)];
      };
      for (std::int64_t w = 0; w < W; ++w) {
        grad_weight[c * W + w] = sum<T>(B * tokens, [&](std::int64_t i) {
          return of_sum(i) * Line<T>(t, d, i / tokens, c)(i % tokens - P + w);
        });
      }
      if (grad_bias != nullptr) grad_bias[c] = sum<T>(B * tokens, of_sum);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator causal_conv1d = describe<CausalConv1d>();
}

}  // namespace assay
