#pragma once

#include <array>

#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"

/// What the gated units share (arXiv:2002.05202): y = f(gate) up p, of either x, whose last extent W = 2C
/// holds gate and up side by side, or gate and up apart; p is a weight per token, 1 without it.
namespace assay {

struct Gated {
  static constexpr std::int64_t work_of_unit = 16;  // an exponential or two

  static constexpr std::string_view lanes_along = "N";
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

  /// @return  whether gate and up are given as x
  static bool bind_halves(std::string_view op, Dims& d, InputShapes inputs) {
    const InputShape* x = find_input(inputs, "x");
    const bool gate = find_input(inputs, "gate") != nullptr, up = find_input(inputs, "up") != nullptr;
    if (gate != up || gate == (x != nullptr)) throw Error("{}: expected either x, or gate and up", op);
    if (x == nullptr) return false;
    const std::int64_t width = x->shape.empty() ? 1 : x->shape.back();
    if (width % 2 != 0) {
      throw Error("{}: x has shape {}; its last extent is gate and up and must be even", op,
                  to_string(x->shape));
    }
    d.set("W", width);
    d.set("C", width / 2);
    return true;
  }

  /// Rows of gate and up, wherever they lie.
  template <class T>
  struct Halves {
    Halves(Tensors<T>& t, const Dims& d, const std::string& prefix, bool gate_first) {
      const std::int64_t C = d.at("C");
      const bool joint = t.has("x");
      stride = joint ? 2 * C : C;
      gate = joint ? t[prefix + "x"].data() + (gate_first ? 0 : C) : t[prefix + "gate"].data();
      up = joint ? t[prefix + "x"].data() + (gate_first ? C : 0) : t[prefix + "up"].data();
    }
    std::int64_t stride;
    T *gate, *up;
  };

  /// @param f           the activation of the gate
  /// @param gate_first  which half of x it is
  template <class T, class F>
  static void gate_forward(Tensors<T>& t, const Dims& d, F f, bool gate_first) {
    const Halves<T> x(t, d, "", gate_first);
    const auto y = t["y"];
    const auto probs = t.optional("probs");
    const std::int64_t N = d.at("N"), C = d.at("C");
    each_in_parallel(N, grain_of(work_of_unit * C), [&](std::int64_t n) {
      for (std::int64_t c = 0; c < C; ++c) {
        const T unit = stored(f(x.gate[n * x.stride + c])) * x.up[n * x.stride + c];
        y(n, c) = probs ? stored(unit) * probs(n) : unit;
      }
    });
  }

  /// grad_gate = g p up f'(gate), grad_up = g p f(gate), grad_p = sum_c g f(gate) up
  template <class T, class F, class G>
  static void gate_backward(Tensors<T>& t, const Dims& d, F f, G slope, bool gate_first) {
    const Halves<T> x(t, d, "", gate_first), grad(t, d, "grad_", gate_first);
    const auto g = t["grad_y"];
    const auto probs = t.optional("probs");
    const auto grad_probs = t.optional("grad_probs");
    const std::int64_t N = d.at("N"), C = d.at("C");
    each_in_parallel(N, grain_of(work_of_unit * C), [&](std::int64_t n) {
      const T *gate = x.gate + n * x.stride, *up = x.up + n * x.stride;
      for (std::int64_t c = 0; c < C; ++c) {
        const T gp = probs ? stored(g(n, c) * probs(n)) : g(n, c);
        grad.gate[n * x.stride + c] = stored(gp * up[c]) * slope(gate[c]);
        grad.up[n * x.stride + c] = gp * stored(f(gate[c]));
      }
      if (!grad_probs) return;
      grad_probs(n) = sum<T>(C, [&](auto c) { return g(n, c) * stored(stored(f(gate[c])) * up[c]); });
    });
  }
};

}  // namespace assay
