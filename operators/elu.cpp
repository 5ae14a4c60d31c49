#include "assay/operators/engine/elu.h"

namespace assay {
namespace {

struct EluOperator {
  static constexpr std::string_view name = "elu";
  static constexpr std::string_view math = "y = x where x > 0, else alpha (exp(x) - 1)";
  static constexpr std::string_view source = "torch.nn.functional.elu; arXiv:1511.07289 eq. 15";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.elu", "torch.nn.ELU", "npu_elu", "ELU",
                                                 "Elu"};
  static constexpr Attribute attributes[] = {{"alpha", "1", "-y of what is far below 0"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5", "alpha=0.3"}};
  static constexpr Solved solved[] = {
      {.attribute = "alpha", .by = Solved::By::bisection, .low = 1e-3, .high = 16}};

  template <class T>
  static Elu<T> function(const Attributes& a) {
    return {T(1), constant<T>(a.real("alpha")), T(1)};
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
extern constexpr Operator elu = describe<EluOperator>();
}

}  // namespace assay
