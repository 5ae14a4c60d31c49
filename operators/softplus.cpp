#include "assay/operators/engine/softplus.h"
#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Softplus {
  static constexpr std::string_view name = "softplus";
  static constexpr std::string_view math = "y = log(1 + exp(beta x)) / beta; x where beta x > threshold";
  static constexpr std::string_view source = "torch.nn.functional.softplus";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.softplus", "torch.nn.Softplus",
                                                 "Softplus"};
  static constexpr Attribute attributes[] = {{"beta", "1", "steepness"},
                                             {"threshold", "20", "above it, in beta x, y is x"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5", "beta=2,threshold=10"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T beta = constant<T>(a.real("beta")), threshold = constant<T>(a.real("threshold"));
    map_forward(t, d, [&](const T& x) {
      const T z = beta * x;
      return threshold < z ? x : softplus(z, threshold) / beta;
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T beta = constant<T>(a.real("beta")), threshold = constant<T>(a.real("threshold"));
    map_backward(t, d, [&](const T& x) { return softplus_slope<T>(beta * x, threshold); });
  }

  // Above 20, torch's threshold, the float32 next to log(1 + exp(x)) is x.
  static void certify(Tensors<float>& t, const Dims&, const Attributes& a, Proofs& proofs) {
    if (a.real("beta") == 1 && a.real("threshold") >= 20) certify_map(Function::softplus, t, proofs);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator softplus = describe<Softplus>();
}

}  // namespace assay
