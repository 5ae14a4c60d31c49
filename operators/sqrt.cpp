#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Sqrt {
  static constexpr std::string_view name = "sqrt";
  static constexpr std::string_view math = "y = sqrt(x)";
  static constexpr std::string_view source = "IEEE 754-2019, sec. 5.4.1";
  static constexpr std::string_view aliases[] = {"torch.sqrt", "Sqrt"};
  // Below 2^-126 a device may flush x to 0.
  static constexpr auto args = unary_args(.25, 4, {0, 0x1.fffffep127, 0x1p-126});
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return sqrt(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) { return T(1) / (T(2) * stored(sqrt(x))); });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::sqrt, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator sqrt = describe<Sqrt>();
}

}  // namespace assay
