#include "assay/golden/parallel.h"
#include "assay/operators/engine/norm.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

struct GatedRmsNorm {
  static constexpr std::string_view name = "gated_rms_norm";
  static constexpr std::string_view math =
      "y = rms_norm(x) w silu(gate); with gate_first y = rms_norm(x silu(gate)) w";
  static constexpr std::string_view source =
      "arXiv:2405.21060 fig. 6 (gate_first); arXiv:2412.06464 fig. 1; Hugging Face transformers "
      "MambaRMSNormGated, Qwen3NextRMSNormGated";
  static constexpr std::string_view aliases[] = {"RMSNormGated", "FusedRMSNormGated"};
  static constexpr Attribute attributes[] = {{"eps", "1e-6", "added to the mean square"},
                                             {"gate_first", "false", "the gate weighs what is normed"},
                                             normalized_shape};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "gate", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8},
      {.name = "weight", .shape = "C*", .role = Role::param, .low = .5, .high = 2},
      {"grad_y", "N*,C*", Role::grad_output},
      {.name = "y", .shape = "N*,C*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "N*,C*", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_gate", .shape = "N*,C*", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_weight", .shape = "C*", .role = Role::grad_input, .terms = "N"},
  };
  static constexpr Example examples[] = {
      {"N=6,C=33"}, {"N=2x3,C=8", "eps=1e-5,gate_first=true"}, {"N=3,C=2x5", "gate_first=true"}};
  static constexpr Seen seen[] = {
      {"eps", "1e-6", "Qwen3-Next"}, {"eps", "1e-5", "Mamba 2, Llama"}, {"gate_first", "true", "Mamba 2"}};
  static constexpr RecordedAs recorded_as[] = {{"x", "hidden_states"}, {"gate", "z"}};
  static constexpr Seen mistaken[] = {{"gate_first", "false", "the gate behind the norm"}};
  static constexpr Solved solved[] = {any_epsilon};
  static constexpr std::string_view gain = "weight";

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_norm(name, d, inputs, a); }

  // What is normed, and a row's 1 / rms of it.
  template <class T>
  struct Rows {
    Rows(Tensors<T>& t, const Dims& d, const Attributes& a)
        : x(t["x"]),
          gate(t["gate"]),
          C(d.at("C")),
          gate_first(a.flag("gate_first")),
          eps(constant<T>(a.real("eps"))) {}
    T normed(std::int64_t n, std::int64_t c) const {
      return gate_first ? x(n, c) * silu(gate(n, c)) : x(n, c);
    }
    T rstd(std::int64_t n) const {
      const T mean_square = sum<T>(C,
                                   [&](auto c) {
                                     const T z = normed(n, c);
                                     return z * z;
                                   }) /
                            number<T>(C);
      return T(1) / sqrt(mean_square + eps);
    }
    View<T> x, gate;
    std::int64_t C;
    bool gate_first;
    T eps;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Rows<T> rows(t, d, a);
    const auto w = t["weight"], y = t["y"];
    const std::int64_t N = d.at("N"), C = d.at("C");
    each_in_parallel(N, grain_of(8 * C), [&](std::int64_t n) {
      const T rstd = rows.rstd(n);
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = stored(rows.normed(n, c) * rstd) * w(c);
        if (!rows.gate_first) y(n, c) = stored(y(n, c)) * silu(rows.gate(n, c));
      }
    });
  }

  // Of the norm, with h = z rstd and v the gradient of h: grad_z = rstd (v - h mean(v h)).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Rows<T> rows(t, d, a);
    const auto w = t["weight"], g = t["grad_y"], grad_x = t["grad_x"], grad_gate = t["grad_gate"],
               grad_w = t["grad_weight"];
    const std::int64_t N = d.at("N"), C = d.at("C");
    const auto of_norm = [&](auto n, auto c) {
      return rows.gate_first ? g(n, c) : stored(g(n, c) * silu(rows.gate(n, c)));
    };
    std::vector<T> rstds(static_cast<std::size_t>(N), T(0));
    each_in_parallel(N, grain_of(16 * C), [&](std::int64_t n) {
      const T rstd = stored(rstds[static_cast<std::size_t>(n)] = rows.rstd(n));
      const auto h = [&](auto c) { return stored(rows.normed(n, c) * rstd); };
      const auto v = [&](auto c) { return stored(w(c) * of_norm(n, c)); };
      const T mean = sum<T>(C, [&](auto c) { return v(c) * h(c); }) / number<T>(C);
      for (std::int64_t c = 0; c < C; ++c) {
        const T grad = rstd * (v(c) - h(c) * mean), slope = silu_slope(rows.gate(n, c));
        grad_x(n, c) = rows.gate_first ? grad * silu(rows.gate(n, c)) : grad;
        grad_gate(n, c) = (rows.gate_first ? grad * rows.x(n, c) : g(n, c) * stored(h(c) * w(c))) * slope;
      }
    });
    each_in_parallel(C, grain_of(8 * N), [&](std::int64_t c) {
      grad_w(c) = sum<T>(N, [&](auto n) {
        const T rstd = stored(rstds[static_cast<std::size_t>(n)]);
        return of_norm(n, c) * stored(rows.normed(n, c) * rstd);
      });
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gated_rms_norm = describe<GatedRmsNorm>();
}

}  // namespace assay
