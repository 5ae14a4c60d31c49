#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Reciprocal {
  static constexpr std::string_view name = "reciprocal";
  static constexpr std::string_view math = "y = 1 / x";
  static constexpr std::string_view source = "torch.reciprocal";
  static constexpr std::string_view aliases[] = {"torch.reciprocal", "Reciprocal"};
  // y^2 of the gradient neither overflows nor underflows.
  static constexpr auto args = unary_args(.5, 2, {-0x1p63, 0x1p63, 0x1p-63});
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr ExactFill exact_fill = ExactFill::powers_of_two;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return T(1) / x; });
  }

  // -y^2
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) {
      const T y = stored(T(1) / x);
      return -(y * y);
    });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::reciprocal, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reciprocal = describe<Reciprocal>();
}

}  // namespace assay
