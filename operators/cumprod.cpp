#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct CumProd {
  static constexpr std::string_view name = "cumprod";
  static constexpr std::string_view math = "y_i = x_0 .. x_i along dim";
  static constexpr std::string_view source = "Higham 2002, sec. 3.1";
  static constexpr std::string_view aliases[] = {"torch.cumprod", "CumProd", "ops.cumprod"};
  static constexpr Attribute attributes[] = {{"dim", "-1", "the dimension that is multiplied along"}};
  static constexpr Arg args[] = {
      {"x", "A*,C*,B*", Role::input},
      {"grad_y", "A*,C*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,C*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {{"A=3,C=6,B="}, {"A=2,C=5,B=3", "dim=1"}, {"A=,C=4,B=2x2", "dim=0"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x"), a.integer("dim"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        T product = T(1);
        for (std::int64_t c = 0; c < C; ++c) y(a, c, b) = product *= x(a, c, b);
      }
    }
  }

  // grad_x_i = sum_{k >= i} g_k product of x_j, j <= k, j != i: the products before i and between i and k,
  // for y_k / x_i would fail at a zero. C^2 / 2 terms.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        T before = T(1);
        std::vector<T> between(static_cast<std::size_t>(C));
        for (std::int64_t i = 0; i < C; ++i) {
          const std::int64_t left = C - i;
          T product = T(1);
          for (std::int64_t k = 0; k < left; ++k)
            between[static_cast<std::size_t>(k)] = k == 0 ? product : product *= x(a, i + k, b);
          const T total =
              sum<T>(left, [&](auto k) { return g(a, i + k, b) * between[static_cast<std::size_t>(k)]; });
          grad_x(a, i, b) = before * total;
          before *= x(a, i, b);
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cumprod = describe<CumProd>();
}

}  // namespace assay
