#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/activation_attribute.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// C channels, each with a filter of its own over the last W tokens; P = W - 1 tokens before the first, zeros
// where no past_state is given. I*: nothing, or the 1 of torch.nn.Conv1d's weights.
struct CausalConv1d {
  static constexpr std::string_view name = "causal_conv1d";
  static constexpr std::string_view math =
      "y_t = f(bias + sum over w of weight_w x_(t - W + 1 + w)), f the identity or silu";
  static constexpr std::string_view source =
      "Mamba arXiv:2312.00752 sec. 3.4; causal_conv1d_fn of Dao-AILab; names of ONNX CausalConvWithState";
  static constexpr std::string_view aliases[] = {"causal_conv1d_fn", "CausalConvWithState",
                                                 "npu_causal_conv1d", "ShortConvolution"};
  static constexpr Attribute attributes[] = {{"activation", "\"none\"", "f: none or silu"},
                                             {"channels_last", "false", "x and y are [B, T, C]"}};
  static constexpr RecordedAs recorded_as[] = {{"y", "0"}, {"present_state", "1"}};
  static constexpr bool has_parts = true;  // its activation
  static constexpr Seen seen[] = {{"channels_last", "true", "flash-linear-attention"},
                                  {"activation", "\"silu\"", "Mamba, flash-linear-attention"}};
  static constexpr Seen mistaken[] = {{"activation", "\"none\"", "silu that is left out"},
                                      {"activation", "\"silu\"", "silu that is done twice"}};
  static constexpr Arg args[] = {
      {"x", "B*,C,T", Role::input},
      {"weight", "C,I*,W", Role::param},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {.name = "past_state", .shape = "B*,C,P", .role = Role::input, .optional = true},
      {"grad_y", "B*,C,T", Role::grad_output},
      {.name = "grad_present_state", .shape = "B*,C,P", .role = Role::grad_output, .optional = true},
      {.name = "y", .shape = "B*,C,T", .role = Role::output, .terms = "W + bias"},
      {.name = "present_state", .shape = "B*,C,P", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "B*,C,T", .role = Role::grad_input, .terms = "W + state"},
      {.name = "grad_weight", .shape = "C,I*,W", .role = Role::grad_input, .terms = "B T"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "B T"},
      {.name = "grad_past_state",
       .shape = "B*,C,P",
       .role = Role::grad_input,
       .optional = true,
       .terms = "W + state"},
  };
  static constexpr Example examples[] = {
      {"B=2,C=3,T=7,I=,W=4", "activation=\"silu\"", "past_state,grad_present_state"},
      {"B=2,C=2,T=5,I=,W=3,P=2", "activation=\"silu\""},
      {"B=2,C=3,T=5,I=1,W=3,P=2", "activation=\"silu\",channels_last=true", "grad_present_state"},
      {"B=1,C=3,T=2,I=1,W=4,P=3", "", "bias"},
      {"B=,C=2,T=6,I=,W=2", "", "bias,past_state,grad_present_state"}};

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    const bool is_moved = a.flag("channels_last") && arg.shape == "B*,C,T";
    return is_moved ? "B*,T,C" : arg.shape;
  }
  // Where the numbers tell.
  static void infer(Recorded& call) {
    const Tensor *x = call.input("x"), *weight = call.input("weight");
    if (x == nullptr || weight == nullptr || x->shape().size() < 2 || weight->shape().empty()) return;
    const std::int64_t last = x->shape().back(), before = x->shape()[x->shape().size() - 2],
                       C = weight->shape()[0];
    if (last == C && before != C) call.attributes.set("channels_last", true);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Shape& weight = shape_of_input(inputs, "weight");
    const std::int64_t W = weight.back();
    if (element_count(Shape(weight.begin() + 1, weight.end() - 1)) != 1) {
      throw Error("causal_conv1d: weight has shape {}; expected [C, W] or [C, 1, W]", to_string(weight));
    }
    if (W < 1) throw Error("causal_conv1d: weight has no taps; expected at least 1");
    (void)has_silu(name, a);
    d.set("B", Shape(x.begin(), x.end() - 2));
    d.set("P", W - 1);
    d.set("bias", find_input(inputs, "bias") != nullptr ? 1 : 0);
    d.set("state", find_input(inputs, "grad_present_state") != nullptr ? 1 : 0);
  }

  // One channel of one sequence, its past before it.
  template <class T>
  struct Line {
    Line(Tensors<T>& t, const Dims& d, const Attributes& a, std::int64_t b, std::int64_t channel)
        : c(channel),
          tokens(d.at("T")),
          W(d.at("W")),
          P(d.at("P")),
          at(b * d.at("C") + c),
          first(a.flag("channels_last") ? b * tokens * d.at("C") + c : at * tokens),
          step(a.flag("channels_last") ? d.at("C") : 1),
          x(t["x"].data()),
          past(t.has("past_state") ? t["past_state"].data() + at * P : nullptr),
          weight(t["weight"].data() + c * W),
          bias(t.has("bias") ? t["bias"].data() + c : nullptr) {}
    /// -P <= i < tokens
    T operator()(std::int64_t i) const { return i >= 0 ? x[of(i)] : past != nullptr ? past[i + P] : T(0); }
    T filtered(std::int64_t i) const {
      const std::int64_t terms = bias == nullptr ? W : W + 1;
      return sum<T>(terms, [&](std::int64_t w) { return w < W ? weight[w] * (*this)(i - P + w) : *bias; });
    }
    /// Where token i is in x and y.
    std::int64_t of(std::int64_t i) const { return first + i * step; }
    std::int64_t c, tokens, W, P, at, first, step;
    const T *x, *past, *weight, *bias;
  };

  template <class T, class F>
  static void each_line(Tensors<T>& t, const Dims& d, const Attributes& a, F f) {
    const std::int64_t C = d.at("C");
    each_in_parallel(d.at("B") * C, grain_of(2 * d.at("T") * d.at("W")),
                     [&](std::int64_t i) { f(Line<T>(t, d, a, i / C, i % C)); });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool gates = has_silu(name, a);
    T *y = t["y"].data(), *present = t["present_state"].data();
    each_line(t, d, a, [&](const Line<T>& line) {
      for (std::int64_t i = 0; i < line.tokens; ++i) {
        const T z = line.filtered(i);
        y[line.of(i)] = gates ? silu<T>(z) : z;
      }
      for (std::int64_t p = 0; p < line.P; ++p)
        present[line.at * line.P + p] = line(line.tokens - line.P + p);
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const bool gates = has_silu(name, a);
    const T *g = t["grad_y"].data(), *of_present = t.optional("grad_present_state").data();
    T *grad_x = t["grad_x"].data(), *grad_past = t.optional("grad_past_state").data();
    const std::int64_t B = d.at("B"), C = d.at("C"), tokens = d.at("T"), W = d.at("W"), P = d.at("P");
    std::vector<T> of_sums(static_cast<std::size_t>(B * C * tokens), T(0));
    each_line(t, d, a, [&](const Line<T>& line) {
      T* of_sum = of_sums.data() + line.at * tokens;
      for (std::int64_t i = 0; i < tokens; ++i) {
        const T& of_y = g[line.of(i)];
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
      for (std::int64_t i = 0; i < tokens; ++i) grad_x[line.of(i)] = gradient(i);
      for (std::int64_t p = 0; p < P && grad_past != nullptr; ++p)
        grad_past[line.at * P + p] = gradient(p - P);
    });
    T *grad_weight = t["grad_weight"].data(), *grad_bias = t.optional("grad_bias").data();
    each_in_parallel(C, grain_of(2 * B * tokens * W), [&](std::int64_t c) {
      std::vector<Line<T>> lines;
      for (std::int64_t b = 0; b < B; ++b) lines.emplace_back(t, d, a, b, c);
      const auto of_sum = [&](std::int64_t i) {
        return of_sums[static_cast<std::size_t>((i / tokens * C + c) * tokens + i % tokens)];
      };
      for (std::int64_t w = 0; w < W; ++w) {
        grad_weight[c * W + w] = sum<T>(B * tokens, [&](std::int64_t i) {
          return of_sum(i) * lines[static_cast<std::size_t>(i / tokens)](i % tokens - P + w);
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
