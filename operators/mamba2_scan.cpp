#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/activation_attribute.h"
#include "assay/operators/engine/inner_call.h"
#include "assay/operators/engine/margin.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/softplus.h"

namespace assay {
namespace {

// B sequences of T tokens; G heads of x with V channels, I in all; K groups of B and C with N channels, those
// of the state, each for a run of neighbouring heads. C: the channels of x, then of B, then of C; P: tokens,
// those of the sequence first, as a convolution leaves some behind them. Y: the channels of a projection, of
// which dt is the last G, and the gate z the first I.
struct Mamba2Scan {
  static constexpr std::string_view name = "mamba2_scan";
  static constexpr std::string_view math =
      "out = linear_attention(C, B, dt' x, decay = -exp(A_log) dt', scale = 1) + D x, dt' = softplus(dt + "
      "dt_bias); gated: times silu(z); f(xBC) has x, B and C side by side, f silu or the identity";
  static constexpr std::string_view source =
      "arXiv:2405.21060 sec. 3 and 7.1; Hugging Face transformers modeling_mamba2.py, modeling_falcon_h1.py";
  static constexpr Attribute attributes[] = {
      {"n_groups", "1", "K: groups of B and C"},
      {"head_dim", "null", "V; null: what zxbcdt has beside xBC and dt is z, of as many channels as x"},
      {"activation", "\"silu\"", "f: none or silu"},
      {"gated", "false", "out is multiplied with silu(z)"},
      {"channels_last", "false", "xBC is [B, T, C]"},
      {"dt_min", "0", "dt' is no smaller"},
      {"dt_max", "null", "dt' is no larger"}};
  static constexpr Arg args[] = {
      {"xBC", "B,C,P", Role::input},
      {"zxbcdt", "B,T,Y", Role::input},
      {"A_log", "G", Role::param, -1, 1},
      {"D", "G", Role::param},
      {"dt_bias", "G", Role::param, -1, 1},
      {"grad_out", "O*", Role::grad_output},
      {.name = "out", .shape = "O*", .role = Role::output, .terms = "N + chain"},
      {.name = "grad_xBC", .shape = "B,C,P", .role = Role::grad_input, .terms = "V copies + N + chain"},
      {.name = "grad_zxbcdt", .shape = "B,T,Y", .role = Role::grad_input, .terms = "V N + chain + chain"},
      {.name = "grad_A_log", .shape = "G", .role = Role::grad_input, .terms = "V N + chain + chain + B T"},
      {.name = "grad_D", .shape = "G", .role = Role::grad_input, .terms = "V B T"},
      {.name = "grad_dt_bias", .shape = "G", .role = Role::grad_input, .terms = "V N + chain + chain + B T"},
  };
  static constexpr Example examples[] = {
      {"B=2,C=14,P=4,T=3,Y=2,G=2", "head_dim=3,n_groups=2"},
      {"B=1,C=10,P=5,T=3,Y=18,G=2", "gated=true,dt_min=0.6"},
      {"B=1,C=8,P=3,T=3,Y=8,G=2", "head_dim=2,channels_last=true,activation=\"none\",dt_max=0.7"}};
  static constexpr Seen seen[] = {{"dt_min", "0.001", "Nemotron-H, Zamba2"}};
  static constexpr Solved solved[] = {
      {.attribute = "n_groups", .by = Solved::By::candidates, .how = "every divisor of the heads of x"}};
  static constexpr std::string_view functional_inputs[] = {"xBC", "zxbcdt", "A_log", "D", "dt_bias"};
  static constexpr bool shares_steps = true;
  static constexpr std::string_view causal_along = "T";

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    return arg.shape == "B,C,P" && a.flag("channels_last") ? "B,T,C" : arg.shape;
  }

  // Behind the I channels of x those of B and C are left, as many of each.
  static bool has_groups(std::int64_t channels, std::int64_t I) {
    return channels > I && (channels - I) % 2 == 0;
  }
  // Tokens first, where so many and whole groups of channels behind them are there.
  static void infer(Recorded& call) {
    const Tensor *given = call.input("zxbcdt"), *xBC = call.input("xBC"), *grad_out = call.input("grad_out");
    if (given == nullptr || xBC == nullptr || (grad_out == nullptr && call.output != "out")) return;
    const Shape &of_given = given->shape(), &of_xBC = xBC->shape();
    const std::int64_t count = grad_out != nullptr ? grad_out->size() : call.result.size();
    if (of_given.size() != 3 || of_xBC.size() != 3 || of_given[0] * of_given[1] == 0) return;
    const std::int64_t I = count / (of_given[0] * of_given[1]);
    const bool may_be_first = has_groups(of_xBC[1], I) && of_xBC[2] >= of_given[1];
    if (of_xBC[1] == of_given[1] && has_groups(of_xBC[2], I) && !may_be_first)
      call.attributes.set("channels_last", true);
  }

  // Whatever the order of xBC: [B, C, P] or [B, T, C].
  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* xBC = find_input(before, "xBC");
    if (next.name != "zxbcdt" || xBC == nullptr) return true;
    return next.shape.size() == 3 && next.shape[1] <= std::max(xBC->shape[1], xBC->shape[2]);
  }
  static bool may_make(InputShapes inputs, const Shape& out) {
    const Shape &given = shape_of_input(inputs, "zxbcdt"), &xBC = shape_of_input(inputs, "xBC");
    const std::int64_t G = element_count(shape_of_input(inputs, "A_log")), rows = given[0] * given[1],
                       count = element_count(out);
    if (rows * G == 0 || count == 0 || count % (rows * G) != 0 || given[2] < G) return false;
    return has_groups(xBC[1], count / rows) || has_groups(xBC[2], count / rows);
  }

  // States and what goes into them stay in a sequence and in a group of heads.
  static std::vector<std::int64_t> steps_apart(std::string_view output, const Shape& shape, const Dims& d,
                                               const Attributes& a) {
    const std::int64_t B = d.at("B"), K = d.at("K"), count = element_count(shape);
    std::vector<std::int64_t> groups;
    if (count == 0) return groups;
    if (output == "grad_xBC") {
      const Layout at(d, a);
      const std::int64_t C = d.at("C"), I = d.at("I");
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t c = at.is_last ? i % C : i / at.P % C;
        groups.push_back(i / (C * at.P) * K + (c < I ? c / (I / K) : (c - I) / d.at("N") % K));
      }
      return groups;
    }
    if (output == "grad_zxbcdt") return groups;  // most columns have no part in it
    const bool is_param = count == d.at("G") && shape.size() == 1;
    const std::int64_t of_row = is_param ? count : count / (B * d.at("T"));
    for (std::int64_t i = 0; i < count; ++i)
      groups.push_back((is_param ? 0 : i / (count / B) * K) + i % of_row / (of_row / K));
    return groups;
  }

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    std::vector<Candidate> all;
    const Tensor *given = call.input("zxbcdt"), *A_log = call.input("A_log"),
                 *grad_out = call.input("grad_out");
    if (given == nullptr || A_log == nullptr || given->shape().size() != 3 ||
        (grad_out == nullptr && call.output != "out"))
      return all;
    const std::int64_t G = A_log->size(), rows = given->shape()[0] * given->shape()[1],
                       count = grad_out != nullptr ? grad_out->size() : call.result.size();
    if (rows * G == 0 || count % (rows * G) != 0) return all;
    const std::int64_t V = count / rows / G;
    for (const bool gated : {false, true}) {
      if (gated && given->shape()[2] < (V + 1) * G) continue;
      for (const char* activation : {"silu", "none"}) {
        for (std::int64_t K = 1; K <= G; ++K) {
          if (G % K != 0) continue;
          Candidate c{{{"n_groups", static_cast<double>(K)}, {"head_dim", static_cast<double>(V)}},
                      fmt::format("n_groups = {}, head_dim = {}, activation = {}{}", K, V, activation,
                                  gated ? ", gated" : "")};
          c.attributes.set("activation", std::string(activation));
          c.attributes.set("gated", gated);
          all.push_back(std::move(c));
        }
      }
    }
    return all;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &given = shape_of_input(inputs, "zxbcdt"), &xBC = shape_of_input(inputs, "xBC");
    const bool is_last = a.flag("channels_last");
    const std::int64_t G = shape_of_input(inputs, "A_log")[0], K = a.integer("n_groups"),
                       C = xBC[is_last ? 2 : 1], P = xBC[is_last ? 1 : 2], tokens = given[1], Y = given[2];
    const std::int64_t V = a.has("head_dim") ? a.integer("head_dim") : G == 0 ? 0 : (Y - C - G) / G;
    if (K < 1 || G < 1 || G % K != 0)
      throw Error("mamba2_scan: {} groups for {} heads; expected a divisor of these", K, G);
    if (V < 1 || V > C) {
      throw Error("mamba2_scan: heads of {} channels, of which xBC has {} and zxbcdt {}; expected {}", V, C,
                  Y, a.has("head_dim") ? "fewer than in xBC" : "z, x, B, C and dt in zxbcdt, or head_dim");
    }
    const std::int64_t I = V * G, N = (C - I) / (2 * K);
    if (N < 1 || C != I + 2 * K * N) {
      throw Error("mamba2_scan: xBC has {} channels for {} heads of {} and {} groups; expected whole groups",
                  C, G, V, K);
    }
    if (Y < (a.flag("gated") ? I + G : G)) {
      throw Error("mamba2_scan: zxbcdt has {} channels for {} heads{}; expected no fewer", Y, G,
                  a.flag("gated") ? fmt::format(" and a gate of {}", I) : "");
    }
    if (tokens > P) throw Error("mamba2_scan: xBC has {} tokens and zxbcdt {}; expected no fewer", P, tokens);
    (void)has_silu(name, a);
    for (const auto& [letter, n] : {std::pair<const char*, std::int64_t>{"C", C},
                                    {"P", P},
                                    {"G", G},
                                    {"K", K},
                                    {"V", V},
                                    {"I", I},
                                    {"N", N},
                                    {"copies", G / K},
                                    {"chain", tokens}})
      d.set(letter, n);
    const InputShape* grad_out = find_input(inputs, "grad_out");
    const Shape made = {given[0], tokens, I};
    const bool is_other = grad_out != nullptr && element_count(grad_out->shape) == element_count(made);
    d.set("O", is_other ? grad_out->shape : made);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (!t.has("grad_out")) Scan<T>(t, d, a).give_out();  // backward makes it on its way
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    Scan<T> scan(t, d, a);
    scan.give_out();
    scan.give_gradients();
  }

 private:
  // Where an element of xBC is.
  struct Layout {
    Layout(const Dims& d, const Attributes& a)
        : is_last(a.flag("channels_last")), C(d.at("C")), P(d.at("P")), tokens(d.at("T")) {}
    std::int64_t operator()(std::int64_t row, std::int64_t c) const {
      const std::int64_t b = row / tokens, t = row % tokens;
      return is_last ? (b * P + t) * C + c : (b * C + c) * P + t;
    }
    bool is_last;
    std::int64_t C, P, tokens;
  };

  template <class T>
  struct Scan {
    Scan(Tensors<T>& tensors, const Dims& dims, const Attributes& attributes)
        : t(tensors),
          d(dims),
          a(attributes),
          at(dims, attributes),
          rows(dims.at("B") * dims.at("T")),
          G(dims.at("G")),
          V(dims.at("V")),
          I(dims.at("I")),
          Y(dims.at("Y")),
          is_silu(has_silu(name, attributes)),
          is_gated(attributes.flag("gated")),
          x(part(0, I)),
          rule(rule_of()) {
      rule.run();
      const std::vector<T>& of_rule = rule.made("out");
      for (std::int64_t i = 0; i < rows * I; ++i)
        y.push_back(stored(stored(of_rule[index(i)]) + stored(x[index(i)] * t["D"].data()[head(i)])));
    }

    void give_out() {
      T* out = t["out"].data();
      for (std::int64_t i = 0; i < rows * I; ++i)
        out[i] = is_gated ? y[index(i)] * stored(silu(gate(i))) : y[index(i)];
    }

    void give_gradients() {
      const std::int64_t of_groups = d.at("K") * d.at("N");
      const std::vector<T> of_v = rule.kept("grad_v"), of_decay = rule.kept("grad_decay");
      T *grad_xBC = t["grad_xBC"].data(), *given = t["grad_zxbcdt"].data();
      std::vector<T> of_x, of_D;
      for (std::int64_t i = 0; i < rows * I; ++i) {
        of_x.push_back(stored(of_v[index(i)] * dt[index(i / V)]) +
                       stored(g[index(i)] * t["D"].data()[head(i)]));
        of_D.push_back(stored(g[index(i)] * x[index(i)]));
        if (is_gated) {
          const T of_silu = stored(t.slot("grad_out").values[index(i)] * y[index(i)]);
          given[i / I * Y + i % I] = of_silu * silu_slope(gate(i));
        }
      }
      give_part(grad_xBC, 0, of_x);
      give_part(grad_xBC, I, rule.made("grad_k"));
      give_part(grad_xBC, I + of_groups, rule.made("grad_q"));
      std::vector<T> of_z, of_rate;
      for (std::int64_t i = 0; i < rows * G; ++i) {
        const T by_v =
            sum<T>(V, [&](auto c) { return stored(of_v[index(i * V + c)] * x[index(i * V + c)]); });
        const T of_dt = stored(by_v) + stored(of_decay[index(i)] * -rate(i));
        of_rate.push_back(stored(of_decay[index(i)] * dt[index(i)]));
        of_z.push_back(within_limits(stored(of_dt), z(i)) * softplus_slope(z(i)));
        given[i / G * Y + Y - G + i % G] = of_z.back();
      }
      for (std::int64_t h = 0; h < G; ++h) {
        const auto over_tokens = [&](const std::vector<T>& terms) {
          return sum<T>(rows, [&](auto i) { return terms[index(i * G + h)]; });
        };
        t["grad_dt_bias"].data()[h] = over_tokens(of_z);
        t["grad_A_log"].data()[h] = -exp(t["A_log"].data()[h]) * stored(over_tokens(of_rate));
        t["grad_D"].data()[h] =
            sum<T>(rows * V, [&](auto i) { return of_D[index(i / V * I + h * V + i % V)]; });
      }
    }

   private:
    static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
    std::int64_t head(std::int64_t of_x) const { return of_x % I / V; }
    const T& gate(std::int64_t of_x) const { return t["zxbcdt"].data()[of_x / I * Y + of_x % I]; }
    // Of a head of a token.
    T rate(std::int64_t i) const { return exp(t["A_log"].data()[i % G]); }
    T z(std::int64_t i) const {
      return stored(t["zxbcdt"].data()[i / G * Y + Y - G + i % G] + t["dt_bias"].data()[i % G]);
    }
    T limited(T of_softplus) const {
      of_softplus = maximum(of_softplus, constant<T>(a.real("dt_min")));
      return a.has("dt_max") ? minimum(of_softplus, constant<T>(a.real("dt_max"))) : of_softplus;
    }
    // A gradient, which goes through where dt' is not at a limit.
    T within_limits(const T& gradient, const T& of_z) const {
      const T made = stored(softplus(of_z)),
              kept = assay::gated(made - constant<T>(a.real("dt_min")), gradient);
      return a.has("dt_max") ? assay::gated(constant<T>(a.real("dt_max")) - made, kept) : kept;
    }

    // Channels of f(xBC) as tokens by channels, and back.
    std::vector<T> part(std::int64_t first, std::int64_t channels) const {
      const T* xBC = t["xBC"].data();
      std::vector<T> all;
      for (std::int64_t i = 0; i < rows * channels; ++i) {
        const T& from = xBC[at(i / channels, first + i % channels)];
        all.push_back(is_silu ? stored(silu(from)) : from);
      }
      return all;
    }
    void give_part(T* grad_xBC, std::int64_t first, const std::vector<T>& of_f) const {
      const T* xBC = t["xBC"].data();
      const std::int64_t channels = std::ssize(of_f) / std::max<std::int64_t>(rows, 1);
      for (std::int64_t i = 0; i < std::ssize(of_f); ++i) {
        const std::int64_t to = at(i / channels, first + i % channels);
        grad_xBC[to] = is_silu ? stored(of_f[index(i)]) * silu_slope(xBC[to]) : of_f[index(i)];
      }
    }

    InnerCall<T> rule_of() {
      const std::int64_t B = d.at("B"), tokens = d.at("T"), K = d.at("K"), N = d.at("N");
      const Shape groups = {B, tokens, K, N}, heads = {B, tokens, G, V};
      std::vector<T> v, decay;
      for (std::int64_t i = 0; i < rows * G; ++i) {
        dt.push_back(stored(limited(stored(softplus(z(i))))));
        decay.push_back(stored(-rate(i) * dt.back()));
      }
      for (std::int64_t i = 0; i < rows * I; ++i) v.push_back(stored(x[index(i)] * dt[index(i / V)]));
      std::vector<typename InnerCall<T>::Input> inputs = {{"q", groups, part(I + K * N, K * N)},
                                                          {"k", groups, part(I, K * N)},
                                                          {"v", heads, std::move(v)},
                                                          {"decay", {B, tokens, G}, std::move(decay)}};
      if (t.has("grad_out")) {
        g = t.slot("grad_out").values;
        for (std::int64_t i = 0; is_gated && i < rows * I; ++i)
          g[index(i)] = stored(g[index(i)] * stored(silu(gate(i))));
        inputs.push_back({"grad_out", heads, g});
      }
      return {ops::linear_attention, Attributes{{"scale", 1.0}}, std::move(inputs)};
    }

    Tensors<T>& t;
    const Dims& d;
    const Attributes& a;
    Layout at;
    std::int64_t rows, G, V, I, Y;
    bool is_silu, is_gated;
    std::vector<T> x, dt, g, y;  // g: the gradient of y
    InnerCall<T> rule;
  };
};

}  // namespace

namespace ops {
extern constexpr Operator mamba2_scan = describe<Mamba2Scan>();
}

}  // namespace assay
