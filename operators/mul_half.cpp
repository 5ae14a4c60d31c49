#include "assay/golden/error.h"
#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// Of x = (x_1, x_2), whose last extent W = 2C holds both side by side, one goes through an activation of its
// own, a, and the other one meets it here.
struct MulHalf {
  static constexpr std::string_view name = "mul_half";
  static constexpr std::string_view math = "y = a x_2 of x = (x_1, x_2), or a x_1";
  static constexpr std::string_view source =
      "arXiv:2002.05202 sec. 2; Hugging Face transformers modeling_phi3.py, modeling_glm4.py";
  static constexpr Attribute attributes[] = {{"first", "false", "it is x_1 that a meets"}};
  static constexpr Arg args[] = {
      {"a", "N*,C", Role::input},
      {"x", "N*,W", Role::input},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "1"},
      {.name = "grad_a", .shape = "N*,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_x", .shape = "N*,W", .role = Role::grad_input, .terms = "1"},
  };
  static constexpr Example examples[] = {{"N=3,C=5,W=10"}, {"N=2x3,C=2,W=4", "first=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view functional_inputs[] = {"a", "x"};
  static constexpr Seen seen[] = {{"first", "true", "diffusers' GEGLU"}};

  static bool may_make(InputShapes inputs, const Shape& y) {
    return !y.empty() && shape_of_input(inputs, "x").back() == 2 * y.back();
  }

  static void bind(Dims&, InputShapes inputs, const Attributes&) {
    const Shape &a = shape_of_input(inputs, "a"), &x = shape_of_input(inputs, "x");
    if (a.empty() || x.empty() || x.back() != 2 * a.back())
      throw Error("mul_half: a has shape {}, x {}; expected twice the channels", to_string(a), to_string(x));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attributes) {
    const auto a = t["a"], x = t["x"], y = t["y"];
    const std::int64_t C = d.at("C"), from = attributes.flag("first") ? 0 : C;
    each_in_parallel(d.at("N"), grain_of(C), [&](std::int64_t n) {
      for (std::int64_t c = 0; c < C; ++c) y(n, c) = a(n, c) * x(n, from + c);
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attributes) {
    const auto a = t["a"], x = t["x"], g = t["grad_y"], grad_a = t["grad_a"], grad_x = t["grad_x"];
    const std::int64_t C = d.at("C"), from = attributes.flag("first") ? 0 : C;
    each_in_parallel(d.at("N"), grain_of(C), [&](std::int64_t n) {
      for (std::int64_t c = 0; c < C; ++c) {
        grad_a(n, c) = g(n, c) * x(n, from + c);
        grad_x(n, from + c) = g(n, c) * a(n, c);
        grad_x(n, C - from + c) = T(0);
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator mul_half = describe<MulHalf>();
}

}  // namespace assay
