#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Rsqrt {
  static constexpr std::string_view name = "rsqrt";
  static constexpr std::string_view math = "y = 1 / sqrt(x)";
  static constexpr std::string_view source = "torch.rsqrt";
  static constexpr std::string_view aliases[] = {"torch.rsqrt", "Rsqrt"};
  // The gradient has y^3: it neither overflows nor underflows.
  static constexpr auto args = unary_args(.25, 4, {0, 0x1p84, 0x1p-84});
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return T(1) / sqrt(x); });
  }

  // -y^3 / 2
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) {
      const T y = stored(T(1) / sqrt(x));
      return T(-.5) * (y * y * y);
    });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::rsqrt, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rsqrt = describe<Rsqrt>();
}

}  // namespace assay
