#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct HardSigmoid {
  static constexpr std::string_view name = "hardsigmoid";
  static constexpr std::string_view math = "y = min(max(x + 3, 0), 6) / 6";
  static constexpr std::string_view source = "torch.nn.functional.hardsigmoid; arXiv:1905.02244 sec. 5.2";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.hardsigmoid", "torch.nn.Hardsigmoid",
                                                 "Hardsigmoid"};
  static constexpr auto args = unary_args(-6, 6);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) {
      return without_cancellation<T>([&] { return minimum<T>(maximum<T>(x + T(3), T(0)), T(6)) / T(6); },
                                     [&] { return minimum<T>(maximum<T>(x / T(6) + T(0.5), T(0)), T(1)); });
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) { return x > T(-3) && x < T(3) ? g / T(6) : T(0); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator hardsigmoid = describe<HardSigmoid>();
}

}  // namespace assay
