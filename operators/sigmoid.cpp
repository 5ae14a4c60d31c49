#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/silu.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Sigmoid {
  static constexpr std::string_view name = "sigmoid";
  static constexpr std::string_view math = "y = 1 / (1 + exp(-x))";
  static constexpr std::string_view source = "torch.nn.functional.sigmoid";
  static constexpr std::string_view aliases[] = {"torch.sigmoid", "torch.nn.functional.sigmoid",
                                                 "torch.nn.Sigmoid", "npu_sigmoid", "Sigmoid"};
  static constexpr auto args = unary_args(-16, 16);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr std::string_view functional_inputs[] = {"x"};
  static constexpr bool never_negative = true;
  static constexpr std::string_view lanes_along = "N";

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return sigmoid<T>(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) { return sigmoid_slope<T>(x); });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::sigmoid, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator sigmoid = describe<Sigmoid>();
}

}  // namespace assay
