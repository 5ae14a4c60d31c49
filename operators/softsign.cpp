#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Softsign {
  static constexpr std::string_view name = "softsign";
  static constexpr std::string_view math = "y = x / (1 + |x|)";
  static constexpr std::string_view source = "torch.nn.functional.softsign";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.softsign", "torch.nn.Softsign",
                                                 "npu_softsign", "Softsign"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return x / (T(1) + abs(x)); });
  }

  // g / (1 + |x|)^2; by the rule of quotients g / (1 + |x|) - g |x| / (1 + |x|)^2.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) {
      const T below = T(1) + abs(x);
      return without_cancellation<T>([&] { return g / below / below; },
                                     [&] {
                                       const T share = stored(g / below), y = stored(x / stored(below));
                                       return share - stored(share * abs(y));
                                     });
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator softsign = describe<Softsign>();
}

}  // namespace assay
