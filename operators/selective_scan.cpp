#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/activation_attribute.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/softplus.h"

namespace assay {
namespace {

// B sequences of T tokens; I channels with a state of N numbers each. P: tokens, those of the sequence first,
// as a convolution leaves some behind them. B and C [B, T, N] are given apart, or are the last 2 N columns of
// BC. The gate is what its activation made already.
struct SelectiveScan {
  static constexpr std::string_view name = "selective_scan";
  static constexpr std::string_view math =
      "out_t = (h_t C_t + D x_t) gate_t, h_t = exp(A dt'_t) h_(t-1) + dt'_t B_t x_t, A = -exp(A_log), dt' = "
      "softplus(dt + dt_bias), x through f, silu or the identity";
  static constexpr std::string_view source =
      "arXiv:2312.00752 sec. 3.2, alg. 2; Hugging Face transformers modeling_mamba.py, modeling_jamba.py";
  static constexpr Attribute attributes[] = {{"activation", "\"none\"", "f: none or silu"}};
  static constexpr Arg args[] = {
      {"x", "B,I,P", Role::input},
      {"dt", "B,T,I", Role::input},
      {.name = "B", .shape = "B,T,N", .role = Role::input, .optional = true},
      {.name = "C", .shape = "B,T,N", .role = Role::input, .optional = true},
      {.name = "BC", .shape = "B,T,Y", .role = Role::input, .optional = true},
      {.name = "gate", .shape = "B,I,T", .role = Role::input, .optional = true},
      {"A_log", "I,N", Role::param, -1, 1},
      {"D", "I", Role::param},
      {.name = "dt_bias", .shape = "I", .role = Role::param, .low = -1, .high = 1, .optional = true},
      {"grad_out", "B,T,I", Role::grad_output},
      {.name = "out", .shape = "B,T,I", .role = Role::output, .terms = "N + T"},
      {.name = "grad_x", .shape = "B,I,P", .role = Role::grad_input, .terms = "N + T"},
      {.name = "grad_dt", .shape = "B,T,I", .role = Role::grad_input, .terms = "2 N + T"},
      {.name = "grad_B", .shape = "B,T,N", .role = Role::grad_input, .optional = true, .terms = "I + T"},
      {.name = "grad_C", .shape = "B,T,N", .role = Role::grad_input, .optional = true, .terms = "I + T"},
      {.name = "grad_BC", .shape = "B,T,Y", .role = Role::grad_input, .optional = true, .terms = "I + T"},
      {.name = "grad_gate", .shape = "B,I,T", .role = Role::grad_input, .optional = true, .terms = "N + T"},
      {.name = "grad_A_log", .shape = "I,N", .role = Role::grad_input, .terms = "T + B T"},
      {.name = "grad_D", .shape = "I", .role = Role::grad_input, .terms = "B T"},
      {.name = "grad_dt_bias",
       .shape = "I",
       .role = Role::grad_input,
       .optional = true,
       .terms = "2 N + T + B T"},
  };
  static constexpr Example examples[] = {
      {"B=2,I=3,P=4,T=3,N=2", "", "BC"},
      {"B=1,I=2,P=3,T=3,N=3,Y=8", "activation=\"silu\"", "B,C,gate,dt_bias"},
      {"B=1,I=2,P=4,T=4,N=2", "", "BC,gate,dt_bias"}};
  static constexpr std::string_view functional_inputs[] = {"x",    "dt",    "B", "C",
                                                           "gate", "A_log", "D", "dt_bias"},
                                    functional_instead[] = {"x", "dt", "BC", "gate", "A_log", "D", "dt_bias"};
  static constexpr Seen seen[] = {{"activation", "\"silu\"", "Mamba, where its activation is no module"}};
  static constexpr bool shares_steps = true;
  static constexpr std::string_view causal_along = "T";

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* x = find_input(before, "x");
    return next.name != "dt" || x == nullptr || next.shape[1] <= x->shape[2];
  }
  static bool may_make(InputShapes inputs, const Shape&) {
    const bool is_apart = find_input(inputs, "B") != nullptr && find_input(inputs, "C") != nullptr;
    const InputShape* both = find_input(inputs, "BC");
    const Shape& A = shape_of_input(inputs, "A_log");
    return both != nullptr ? both->shape.back() >= 2 * A.back() : is_apart;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape &x = shape_of_input(inputs, "x"), &dt = shape_of_input(inputs, "dt"),
                &A = shape_of_input(inputs, "A_log");
    const InputShape* both = find_input(inputs, "BC");
    const bool has_B = find_input(inputs, "B") != nullptr, has_C = find_input(inputs, "C") != nullptr;
    if (has_B != has_C || has_B == (both != nullptr))
      throw Error("selective_scan: expected B and C, or BC with both in its last columns");
    if (both != nullptr && both->shape.back() < 2 * A[1]) {
      throw Error("selective_scan: BC has {} columns for a state of {}; expected {} or more",
                  both->shape.back(), A[1], 2 * A[1]);
    }
    if (dt[1] > x[2])
      throw Error("selective_scan: x has {} tokens and dt {}; expected no fewer", x[2], dt[1]);
    (void)has_silu(name, a);
    d.set("N", A[1]);
  }

  // Both of B and C where they are given.
  template <class T>
  struct Columns {
    Columns(Tensors<T>& t, const Dims& d, std::string_view which, std::string_view prefix) : N(d.at("N")) {
      const bool are_apart = t.has("B");
      const std::string of(prefix);
      width = are_apart ? N : d.at("Y");
      first = are_apart ? 0 : which == "B" ? width - 2 * N : width - N;
      data = t[of + std::string(are_apart ? which : "BC")].data();
    }
    T& operator()(std::int64_t row, std::int64_t n) const { return data[row * width + first + n]; }
    std::int64_t N, width, first;
    T* data;
  };

  // A channel of a sequence: what goes through it, and its states, S_0 = 0.
  template <class T>
  struct Channel {
    Channel(Tensors<T>& t, const Dims& d, const Attributes& a, std::int64_t sequence, std::int64_t channel)
        : b(sequence),
          i(channel),
          tokens(d.at("T")),
          N(d.at("N")),
          I(d.at("I")),
          B(t, d, "B", ""),
          C(t, d, "C", ""),
          given(t["x"].data() + (b * I + i) * d.at("P")),
          gate(t.has("gate") ? t["gate"].data() + (b * I + i) * tokens : nullptr),
          skip(t["D"].data()[i]) {
      const bool is_silu = has_silu(name, a);
      const T *A_log = t["A_log"].data() + i * N, *given_dt = t["dt"].data(),
              *bias = t.has("dt_bias") ? t["dt_bias"].data() + i : nullptr;
      for (std::int64_t n = 0; n < N; ++n) A.push_back(-exp(A_log[n]));
      states.assign(static_cast<std::size_t>(N), T(0));
      for (std::int64_t s = 0; s < tokens; ++s) {
        x.push_back(is_silu ? stored(silu(given[s])) : given[s]);
        const T& of_dt = given_dt[row(s) * I + i];
        z.push_back(bias != nullptr ? stored(of_dt + *bias) : of_dt);
        dt.push_back(stored(softplus(z.back())));
        for (std::int64_t n = 0; n < N; ++n) {
          decays.push_back(exp(A[index(n)] * dt.back()));
          states.push_back(decays.back() * state(s, n) + written(s, n) * x.back());
        }
      }
    }
    static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
    std::int64_t row(std::int64_t s) const { return b * tokens + s; }
    // Before token s.
    const T& state(std::int64_t s, std::int64_t n) const { return states[index(s * N + n)]; }
    const T& decay(std::int64_t s, std::int64_t n) const { return decays[index(s * N + n)]; }
    T written(std::int64_t s, std::int64_t n) const { return dt[index(s)] * B(row(s), n); }
    T made(std::int64_t s) const {
      const T of_state = stored(sum<T>(N, [&](auto n) { return stored(state(s + 1, n)) * C(row(s), n); }));
      return stored(of_state + stored(skip * x[index(s)]));
    }
    std::int64_t b, i, tokens, N, I;
    Columns<T> B, C;
    const T *given, *gate;
    const T& skip;
    std::vector<T> A, x, z, dt, decays, states;
  };

  template <class T>
  static void give_out(Tensors<T>& t, const Channel<T>& c) {
    T* out = t["out"].data();
    for (std::int64_t s = 0; s < c.tokens; ++s)
      out[c.row(s) * c.I + c.i] = c.gate != nullptr ? c.made(s) * c.gate[s] : c.made(s);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    if (t.has("grad_out")) return;  // backward makes it on its way
    const std::int64_t I = d.at("I");
    each_in_parallel(d.at("B") * I, grain_of(8 * d.at("T") * d.at("N")),
                     [&](std::int64_t at) { give_out(t, Channel<T>(t, d, a, at / I, at % I)); });
  }

  // What the tokens of all sequences add to the gradients of a channel's parameters.
  template <class T>
  struct OfParameters {
    std::vector<std::vector<T>> A_log;  // by state, before the factor A
    std::vector<T> D, dt_bias;
  };
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t B = d.at("B"), I = d.at("I"), N = d.at("N");
    // Of each row of B and C, by channel.
    std::vector<std::vector<T>> of_B(static_cast<std::size_t>(B * d.at("T") * N)), of_C = of_B;
    for (auto* all : {&of_B, &of_C}) {
      for (std::vector<T>& terms : *all) terms.assign(static_cast<std::size_t>(I), T(0));
    }
    each_in_parallel(I, grain_of(32 * B * d.at("T") * N), [&](std::int64_t i) {
      OfParameters<T> sums{std::vector<std::vector<T>>(static_cast<std::size_t>(N)), {}, {}};
      for (std::int64_t b = 0; b < B; ++b) {
        const Channel<T> c(t, d, a, b, i);
        give_out(t, c);
        backward_of(t, d, a, c, of_B, of_C, sums);
      }
      const auto added = [](const std::vector<T>& terms) {
        return sum<T>(std::ssize(terms), [&](auto k) { return terms[static_cast<std::size_t>(k)]; });
      };
      for (std::int64_t n = 0; n < N; ++n) {
        const T A = -exp(t["A_log"].data()[i * N + n]);
        t["grad_A_log"].data()[i * N + n] = stored(added(sums.A_log[static_cast<std::size_t>(n)])) * A;
      }
      t["grad_D"].data()[i] = added(sums.D);
      if (t.has("dt_bias")) t["grad_dt_bias"].data()[i] = added(sums.dt_bias);
    });
    const Columns<T> grad_B(t, d, "B", "grad_"), grad_C(t, d, "C", "grad_");
    each_in_parallel(B * d.at("T"), grain_of(2 * N * I), [&](std::int64_t row) {
      for (std::int64_t n = 0; n < N; ++n) {
        const auto at = static_cast<std::size_t>(row * N + n);
        grad_B(row, n) = sum<T>(I, [&](auto i) { return of_B[at][static_cast<std::size_t>(i)]; });
        grad_C(row, n) = sum<T>(I, [&](auto i) { return of_C[at][static_cast<std::size_t>(i)]; });
      }
    });
  }

  // R, the gradient of the state, runs from the last token to the first.
  template <class T>
  static void backward_of(Tensors<T>& t, const Dims& d, const Attributes& a, const Channel<T>& c,
                          std::vector<std::vector<T>>& of_B, std::vector<std::vector<T>>& of_C,
                          OfParameters<T>& sums) {
    const bool is_silu = has_silu(name, a);
    const std::int64_t N = c.N, I = c.I, of_channel = c.b * I + c.i;
    const T* upstream = t["grad_out"].data();
    T *grad_x = t["grad_x"].data() + of_channel * d.at("P"), *grad_dt = t["grad_dt"].data(),
      *grad_gate = c.gate != nullptr ? t["grad_gate"].data() + of_channel * c.tokens : nullptr;
    std::vector<T> R(static_cast<std::size_t>(N), T(0));
    for (std::int64_t s = c.tokens - 1; s >= 0; --s) {
      const std::int64_t row = c.row(s);
      const auto here = static_cast<std::size_t>(s), i = static_cast<std::size_t>(c.i);
      const T &of_out = upstream[row * I + c.i], &x = c.x[here], &dt = c.dt[here];
      const T g = c.gate != nullptr ? stored(of_out * c.gate[s]) : of_out;
      if (grad_gate != nullptr) grad_gate[s] = of_out * c.made(s);
      for (std::int64_t n = 0; n < N; ++n) {
        T& r = R[static_cast<std::size_t>(n)];
        r += stored(g * c.C(row, n));
        const auto at = static_cast<std::size_t>(row * N + n);
        of_C[at][i] = stored(g * stored(c.state(s + 1, n)));
        of_B[at][i] = stored(r * dt * x);
        sums.A_log[static_cast<std::size_t>(n)].push_back(stored(r * c.state(s, n) * c.decay(s, n) * dt));
      }
      const auto over_states = [&](auto term) {
        return stored(sum<T>(N, [&](auto n) { return stored(R[static_cast<std::size_t>(n)] * term(n)); }));
      };
      const T of_x = over_states([&](auto n) { return c.written(s, n); }) + stored(g * c.skip);
      grad_x[s] = is_silu ? stored(of_x) * silu_slope(c.given[s]) : of_x;
      const T of_dt = over_states([&](auto n) { return c.B(row, n) * x; }) + over_states([&](auto n) {
                        return c.state(s, n) * c.decay(s, n) * c.A[static_cast<std::size_t>(n)];
                      });
      const T of_z = stored(of_dt) * softplus_slope(c.z[here]);
      grad_dt[row * I + c.i] = of_z;
      sums.dt_bias.push_back(stored(of_z));
      sums.D.push_back(stored(g * x));
      for (std::int64_t n = 0; n < N; ++n) R[static_cast<std::size_t>(n)] *= c.decay(s, n);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator selective_scan = describe<SelectiveScan>();
}

}  // namespace assay
