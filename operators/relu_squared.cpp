#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct ReluSquared {
  static constexpr std::string_view name = "relu_squared";
  static constexpr std::string_view math = "y = max(x, 0)^2";
  static constexpr std::string_view source = "Primer, arXiv:2109.08668 sec. 4.2; Nemotron";
  static constexpr std::string_view aliases[] = {"ReLUSquaredActivation", "relu2", "squared_relu"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr std::string_view functional_inputs[] = {"x"};
  static constexpr bool never_negative = true;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) {
      const T r = maximum(x, T(0));
      return r * r;
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) { return x <= T(0) ? T(0) : stored(T(2) * x) * g; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator relu_squared = describe<ReluSquared>();
}

}  // namespace assay
