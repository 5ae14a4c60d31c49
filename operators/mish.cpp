#include "assay/operators/engine/silu.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Mish {
  static constexpr std::string_view name = "mish";
  static constexpr std::string_view math = "y = x tanh(log(1 + exp(x)))";
  static constexpr std::string_view source = "torch.nn.functional.mish; arXiv:1908.08681 eq. 1";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.mish", "torch.nn.Mish", "npu_mish",
                                                 "Mish"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  // log(1 + exp(x)) without overflow
  template <class T>
  static T gate(const T& x) {
    return tanh(stored(maximum(x, T(0)) + log1p(exp(-abs(x)))));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return x * stored(gate<T>(x)); });
  }

  // t + x s (1 - t^2), with t the gate and s its logarithm's derivative, sigmoid(x).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) {
      const T gated = stored(gate<T>(x));
      return gated + stored(x * stored(sigmoid<T>(x)) * stored(T(1) - gated * gated));
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator mish = describe<Mish>();
}

}  // namespace assay
