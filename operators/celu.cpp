#include "assay/golden/error.h"
#include "assay/operators/engine/elu.h"

namespace assay {
namespace {

struct Celu {
  static constexpr std::string_view name = "celu";
  static constexpr std::string_view math = "y = x where x > 0, else alpha (exp(x / alpha) - 1)";
  static constexpr std::string_view source = "torch.nn.functional.celu; arXiv:1704.07483 eq. 2";
  static constexpr std::string_view aliases[] = {
      "torch.nn.functional.celu", "torch.celu", "torch.nn.CELU", "npu_celu", "CELU", "Celu"};
  static constexpr Attribute attributes[] = {{"alpha", "1", "-y of what is far below 0"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5", "alpha=0.3"}};
  static constexpr Solved solved[] = {
      {.attribute = "alpha", .by = Solved::By::bisection, .low = 1e-3, .high = 16}};

  static void bind(Dims&, InputShapes, const Attributes& a) {
    if (a.real("alpha") == 0) throw Error("celu: alpha is 0; expected another number");
  }
  // Kernels multiply by 1 / alpha.
  template <class T>
  static Elu<T> function(const Attributes& a) {
    const T alpha = constant<T>(a.real("alpha"));
    return {T(1), alpha, T(1) / alpha};
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    elu_forward(t, d, function<T>(a));
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    elu_backward(t, d, function<T>(a));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator celu = describe<Celu>();
}

}  // namespace assay
