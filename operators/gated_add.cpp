#include <cmath>
#include <type_traits>

#include "assay/golden/error.h"
#include "assay/operators/engine/list.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

// N tokens of C channels, in tensors that may have their token dimensions X*, Z*, R* apart or as one; a gate
// for each token (E = 1) or channel (E = C).
struct GatedAdd {
  static constexpr std::string_view name = "gated_add";
  static constexpr std::string_view math = "y = r + (x + sigmoid(gate) z), the sum in any order";
  static constexpr std::string_view source =
      "a shared expert beside the routed ones: Hugging Face transformers Qwen2MoeSparseMoeBlock, "
      "Qwen3NextSparseMoeBlock";
  static constexpr Arg args[] = {
      {"x", "X*,C", Role::input},
      {.name = "gate", .shape = "G*,E", .role = Role::input, .low = -8, .high = 8},
      {"z", "Z*,C", Role::input},
      {.name = "r", .shape = "R*,C", .role = Role::input, .optional = true},
      {"grad_y", "Y*,C", Role::grad_output},
      {.name = "y", .shape = "Y*,C", .role = Role::output, .terms = "3"},
      {.name = "grad_x", .shape = "X*,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_gate", .shape = "G*,E", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_z", .shape = "Z*,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_r", .shape = "R*,C", .role = Role::grad_input, .optional = true, .terms = "1"},
  };
  static constexpr Example examples[] = {{"X=6,G=6,Z=6,R=2x3,C=4,E=1"}, {"X=2x2,G=4,Z=4,C=5,E=5", "", "r"}};
  static constexpr std::string_view functional_inputs[] = {"x", "gate", "z", "r"};
  static constexpr bool shares_steps = true;

  static std::int64_t tokens(const Shape& s) {
    return s.empty() ? 0 : element_count({s.begin(), s.end() - 1});
  }
  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape* x = find_input(before, "x");
    if (x == nullptr || x->shape.empty() || next.shape.empty()) return true;
    const bool is_gate = next.name == "gate";
    return tokens(next.shape) == tokens(x->shape) &&
           (next.shape.back() == x->shape.back() || (is_gate && next.shape.back() == 1));
  }

  // The gradient of the result comes in the shape of the result: that of r, where it is there.
  static bool may_make(InputShapes inputs, const Shape& y) {
    const InputShape* r = find_input(inputs, "r");
    return r == nullptr || r->shape == y;
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    const Shape &x = shape_of_input(inputs, "x"), &gate = shape_of_input(inputs, "gate");
    const InputShape* r = find_input(inputs, "r");
    const Shape& y = r != nullptr ? r->shape : x;
    for (const InputShape& input : inputs) {
      if (tokens(input.shape) != tokens(x)) {
        throw Error(
            "gated_add: x has shape {}, {} {}; expected as many tokens in all, in front of the channels",
            to_string(x), input.name, to_string(input.shape));
      }
    }
    if (gate.back() != 1 && gate.back() != x.back())
      throw Error(
          "gated_add: gate has shape {}; expected one gate for each token, or one for each of {} channels",
          to_string(gate), x.back());
    d.set("Y", Shape(y.begin(), y.end() - 1));
  }

  // r + (x + z). Values do not tell in which order a program adds three: in Bound that with the largest sum
  // in between, whose rounding is the largest, too.
  template <class T>
  static T of_three(const T& r, const T& x, const T& z) {
    T between = x + z, last = r;
    if constexpr (std::is_same_v<T, Bound>) {
      const auto try_order = [&](const T& sum, const T& rest) {
        if (std::abs(sum.value) > std::abs(between.value)) {
          between = sum;
          last = rest;
        }
      };
      try_order(r + x, z);
      try_order(r + z, x);
    }
    return last + stored(between);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("X"), C = d.at("C"), E = d.at("E");
    const T *x = t["x"].data(), *gate = t["gate"].data(), *z = t["z"].data();
    const auto r = t.optional("r");
    T* y = t["y"].data();
    for (std::int64_t i = 0; i < N * C; ++i) {
      const T of_gate = stored(stored(sigmoid(gate[E == 1 ? i / C : i])) * z[i]);
      y[i] = r ? of_three(r.data()[i], x[i], of_gate) : x[i] + of_gate;
    }
  }

  // grad_gate = sigmoid'(gate) sum of g z over the channels of a gate, grad_z = g sigmoid(gate)
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("X"), C = d.at("C"), E = d.at("E");
    const T *gate = t["gate"].data(), *z = t["z"].data(), *g = t["grad_y"].data();
    const auto grad_r = t.optional("grad_r");
    T *grad_x = t["grad_x"].data(), *grad_gate = t["grad_gate"].data(), *grad_z = t["grad_z"].data();
    for (std::int64_t i = 0; i < N * C; ++i) {
      grad_x[i] = g[i];
      if (grad_r) grad_r.data()[i] = g[i];
      grad_z[i] = g[i] * stored(sigmoid(gate[E == 1 ? i / C : i]));
    }
    for (std::int64_t i = 0; i < N * E; ++i) {
      const T s = stored(sigmoid(gate[i]));
      const T slope =
          s * without_cancellation<T>([&] { return sigmoid(-gate[i]); }, [&] { return T(1) - s; });
      const T of_gate =
          E == 1 ? sum<T>(C, [&](auto c) { return stored(g[i * C + c] * z[i * C + c]); }) : g[i] * z[i];
      grad_gate[i] = stored(of_gate) * slope;
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gated_add = describe<GatedAdd>();
}

}  // namespace assay
