#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Abs {
  static constexpr std::string_view name = "abs";
  static constexpr std::string_view math = "y = |x|";
  static constexpr std::string_view source = "IEEE 754-2019, sec. 5.5.1";
  static constexpr std::string_view aliases[] = {"torch.abs", "torch.absolute", "Abs"};
  static constexpr auto args = unary_args(-2, 2, everywhere, Exact::value);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return abs(x); });
  }

  // grad_y times the sign of x, which torch.sgn has as 0 where x is 0 or NaN.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) {
      if (x < T(0)) return -g;
      return T(0) < x ? g : T(0) * g;
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator abs = describe<Abs>();
}

}  // namespace assay
