#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/silu.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Tanh {
  static constexpr std::string_view name = "tanh";
  static constexpr std::string_view math = "y = tanh(x)";
  static constexpr std::string_view source = "torch.tanh";
  static constexpr std::string_view aliases[] = {"torch.tanh", "torch.nn.functional.tanh", "torch.nn.Tanh",
                                                 "Tanh"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr std::string_view functional_inputs[] = {"x"};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return tanh(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    // 1 - tanh^2 = 4 s (1 - s) with s = sigmoid(2x): nothing cancels where tanh is near 1.
    map_backward(t, d, [](const T& x) {
      return without_cancellation<T>([&] { return T(4) * sigmoid<T>(T(2) * x) * sigmoid<T>(T(-2) * x); },
                                     [&] {
                                       const T y = stored(tanh(x));
                                       return T(1) - y * y;
                                     });
    });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::tanh, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator tanh = describe<Tanh>();
}

}  // namespace assay
