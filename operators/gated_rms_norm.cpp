#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/norm.h"
#include "assay/operators/engine/recorded.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// G runs of neighbouring channels, S of them in each, have a norm of their own.
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
                                             {"groups", "1", "G: runs of channels that are normed apart"},
                                             normalized_shape};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "gate", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8},
      {.name = "weight", .shape = "C*", .role = Role::param, .low = .5, .high = 2},
      {"grad_y", "N*,C*", Role::grad_output},
      {.name = "y", .shape = "N*,C*", .role = Role::output, .terms = "S"},
      {.name = "grad_x", .shape = "N*,C*", .role = Role::grad_input, .terms = "S"},
      {.name = "grad_gate", .shape = "N*,C*", .role = Role::grad_input, .terms = "S"},
      {.name = "grad_weight", .shape = "C*", .role = Role::grad_input, .terms = "N"},
  };
  static constexpr Example examples[] = {{"N=6,C=33"},
                                         {"N=2x3,C=8", "eps=1e-5,gate_first=true"},
                                         {"N=3,C=2x5", "gate_first=true"},
                                         {"N=4,C=12", "gate_first=true,groups=3"}};
  static constexpr Seen seen[] = {
      {"eps", "1e-6", "Qwen3-Next"}, {"eps", "1e-5", "Mamba 2, Llama"}, {"gate_first", "true", "Mamba 2"}};
  static constexpr RecordedAs recorded_as[] = {{"x", "hidden_states"}, {"gate", "z"}};
  static constexpr Seen mistaken[] = {{"gate_first", "false", "the gate behind the norm"}};
  static constexpr Solved solved[] = {
      any_epsilon,
      {.attribute = "groups", .by = Solved::By::candidates, .how = "every divisor of the channels"}};
  static constexpr std::string_view gain = "weight";

  static std::vector<Candidate> candidates(const Attributes&, const Recorded& call) {
    std::vector<Candidate> all;
    const Tensor* weight = call.input("weight");
    for (std::int64_t G = 2; weight != nullptr && G < weight->size(); ++G) {
      if (weight->size() % G == 0)
        all.push_back({{{"groups", static_cast<double>(G)}}, fmt::format("groups = {}", G)});
    }
    return all;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_norm(name, d, inputs, a);
    const std::int64_t C = d.at("C"), G = a.integer("groups");
    if (G < 1 || C % G != 0)
      throw Error("gated_rms_norm: {} groups of {} channels; expected a divisor of these", G, C);
    d.set("S", C / G);
  }

  // What is normed, and a row's 1 / rms of it.
  template <class T>
  struct Rows {
    Rows(Tensors<T>& t, const Dims& d, const Attributes& a)
        : x(t["x"]),
          gate(t["gate"]),
          size(d.at("S")),
          gate_first(a.flag("gate_first")),
          eps(constant<T>(a.real("eps"))) {}
    T normed(std::int64_t n, std::int64_t c) const {
      return gate_first ? x(n, c) * silu(gate(n, c)) : x(n, c);
    }
    // Of each group.
    std::vector<T> rstds(std::int64_t n, std::int64_t groups) const {
      std::vector<T> all;
      for (std::int64_t first = 0; first < groups * size; first += size) {
        const T mean_square = sum<T>(size,
                                     [&](auto c) {
                                       const T z = normed(n, first + c);
                                       return z * z;
                                     }) /
                              number<T>(size);
        all.push_back(T(1) / sqrt(mean_square + eps));
      }
      return all;
    }
    View<T> x, gate;
    std::int64_t size;  // of a group
    bool gate_first;
    T eps;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Rows<T> rows(t, d, a);
    const auto w = t["weight"], y = t["y"];
    const std::int64_t N = d.at("N"), C = d.at("C"), size = rows.size;
    each_in_parallel(N, grain_of(8 * C), [&](std::int64_t n) {
      const std::vector<T> rstds = rows.rstds(n, C / std::max<std::int64_t>(size, 1));
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = stored(rows.normed(n, c) * rstds[static_cast<std::size_t>(c / size)]) * w(c);
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
    const std::int64_t N = d.at("N"), C = d.at("C"), size = rows.size,
                       G = C / std::max<std::int64_t>(size, 1);
    const auto of_norm = [&](auto n, auto c) {
      return rows.gate_first ? g(n, c) : stored(g(n, c) * silu(rows.gate(n, c)));
    };
    std::vector<T> rstds(static_cast<std::size_t>(N * G), T(0));
    each_in_parallel(N, grain_of(8 * C),
                     [&](std::int64_t n) { std::ranges::copy(rows.rstds(n, G), rstds.begin() + n * G); });
    const auto rstd_of = [&](std::int64_t n, std::int64_t c) {
      return stored(rstds[static_cast<std::size_t>(n * G + c / size)]);
    };
    each_in_parallel(N * G, grain_of(16 * size), [&](std::int64_t row) {
      const std::int64_t n = row / G, first = row % G * size;
      const T rstd = rstd_of(n, first);
      const auto h = [&](auto c) { return stored(rows.normed(n, c) * rstd); };
      const auto v = [&](auto c) { return stored(w(c) * of_norm(n, c)); };
      const T mean = sum<T>(size, [&](auto c) { return v(first + c) * h(first + c); }) / number<T>(size);
      for (std::int64_t c = first; c < first + size; ++c) {
        const T grad = rstd * (v(c) - h(c) * mean), slope = silu_slope(rows.gate(n, c));
        grad_x(n, c) = rows.gate_first ? grad * silu(rows.gate(n, c)) : grad;
        grad_gate(n, c) = (rows.gate_first ? grad * rows.x(n, c) : g(n, c) * stored(h(c) * w(c))) * slope;
      }
    });
    each_in_parallel(C, grain_of(8 * N), [&](std::int64_t c) {
      grad_w(c) =
          sum<T>(N, [&](auto n) { return of_norm(n, c) * stored(rows.normed(n, c) * rstd_of(n, c)); });
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gated_rms_norm = describe<GatedRmsNorm>();
}

}  // namespace assay
