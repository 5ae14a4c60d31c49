#include "assay/golden/error.h"
#include "assay/operators/operator.h"
#include "assay/operators/silu.h"

namespace assay {
namespace {

// Either x of width W = 2C, whose first half is the gate, or gate and up apart.
struct SwiGlu {
  static constexpr std::string_view name = "swiglu";
  static constexpr std::string_view math = "y = silu(gate) up p";
  static constexpr std::string_view source =
      "arXiv:2002.05202 eq. 6; gate first and probs p as in Megatron-LM";
  static constexpr std::string_view aliases[] = {"npu_swiglu", "Swiglu", "bias_swiglu_impl",
                                                 "weighted_bias_swiglu_impl"};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,W", .role = Role::input, .low = -8, .high = 8, .optional = true},
      {.name = "gate", .shape = "N*,C", .role = Role::input, .low = -8, .high = 8, .optional = true},
      {.name = "up", .shape = "N*,C", .role = Role::input, .low = -8, .high = 8, .optional = true},
      {.name = "probs", .shape = "N*", .role = Role::input, .low = 0, .high = 1, .optional = true},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "1"},
      {.name = "grad_x", .shape = "N*,W", .role = Role::grad_input, .optional = true, .terms = "1"},
      {.name = "grad_gate", .shape = "N*,C", .role = Role::grad_input, .optional = true, .terms = "1"},
      {.name = "grad_up", .shape = "N*,C", .role = Role::grad_input, .optional = true, .terms = "1"},
      {.name = "grad_probs", .shape = "N*", .role = Role::grad_input, .optional = true, .terms = "C"},
  };
  static constexpr Example examples[] = {
      {"N=4,W=10", "", "gate,up,probs"}, {"N=9,C=13", "", "x"}, {"N=2x3,W=6", "", "gate,up"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    const InputShape* x = find_input(inputs, "x");
    const bool gate = find_input(inputs, "gate") != nullptr, up = find_input(inputs, "up") != nullptr;
    if (gate != up || gate == (x != nullptr)) throw Error("swiglu: expected either x, or gate and up");
    if (x == nullptr) return;
    const std::int64_t width = x->shape.empty() ? 1 : x->shape.back();
    if (width % 2 != 0) {
      throw Error("swiglu: x has shape {}; its last extent is gate and up and must be even",
                  to_string(x->shape));
    }
    d.set("W", width);
    d.set("C", width / 2);
  }

  // gate(n, c) and up(n, c), wherever they lie.
  template <class T>
  struct Halves {
    Halves(Tensors<T>& t, const Dims& d, std::string_view joint, std::string_view first,
           std::string_view second)
        : stride(t.has(joint) ? d.at("W") : d.at("C")),
          gate(t.has(joint) ? t[joint].data() : t[first].data()),
          up(t.has(joint) ? gate + d.at("C") : t[second].data()) {}
    std::int64_t stride;
    T *gate, *up;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const Halves<T> x(t, d, "x", "gate", "up");
    const auto y = t["y"];
    const auto probs = t.optional("probs");
    const std::int64_t N = d.at("N"), C = d.at("C");
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = silu(x.gate[n * x.stride + c]) * x.up[n * x.stride + c];
        if (probs) y(n, c) *= probs(n);
      }
    }
  }

  // grad_gate = g p up silu'(gate), grad_up = g p silu(gate), grad_p = sum_c g silu(gate) up
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const Halves<T> x(t, d, "x", "gate", "up"), grad(t, d, "grad_x", "grad_gate", "grad_up");
    const auto g = t["grad_y"];
    const auto probs = t.optional("probs");
    const auto grad_probs = t.optional("grad_probs");
    const std::int64_t N = d.at("N"), C = d.at("C");
    for (std::int64_t n = 0; n < N; ++n) {
      const T *gate = x.gate + n * x.stride, *up = x.up + n * x.stride;
      for (std::int64_t c = 0; c < C; ++c) {
        const T gp = probs ? g(n, c) * probs(n) : g(n, c);
        grad.gate[n * x.stride + c] = gp * up[c] * silu_slope(gate[c]);
        grad.up[n * x.stride + c] = gp * silu(gate[c]);
      }
      if (!grad_probs) continue;
      grad_probs(n) = sum<T>(C, [&](auto c) { return g(n, c) * silu(gate[c]) * up[c]; });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator swiglu = describe<SwiGlu>();
}

}  // namespace assay
