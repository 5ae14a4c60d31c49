#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Exp {
  static constexpr std::string_view name = "exp";
  static constexpr std::string_view math = "y = exp(x)";
  static constexpr std::string_view source = "torch.exp";
  static constexpr std::string_view aliases[] = {"torch.exp", "Exp"};
  // From the logarithm of the smallest normal float32, 2^-126, to that of the largest.
  static constexpr auto args = unary_args(-8, 8, {-87.3365, 88.7228});
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return exp(x); });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_backward(t, d, [](const T& x) { return stored(exp(x)); });
  }

  static void certify(Tensors<float>& t, const Dims&, const Attributes&, Proofs& proofs) {
    certify_map(Function::exp, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator exp = describe<Exp>();
}

}  // namespace assay
