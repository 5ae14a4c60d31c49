#include "assay/operators/engine/elu.h"

namespace assay {
namespace {

struct Selu {
  static constexpr std::string_view name = "selu";
  static constexpr std::string_view math = "y = l x where x > 0, else l a (exp(x) - 1)";
  static constexpr std::string_view source =
      "torch.nn.functional.selu; arXiv:1706.02515 eq. 2: l = 1.0507.., a = 1.6733..";
  static constexpr std::string_view aliases[] = {
      "torch.nn.functional.selu", "torch.selu", "torch.nn.SELU", "npu_selu", "SELU", "Selu"};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  // With these a mean of 0 and a variance of 1 go through a layer as they are.
  static constexpr double lambda = 1.0507009873554804934193349852946,
                          alpha = 1.6732632423543772848170429916717;

  template <class T>
  static Elu<T> function() {
    return {constant<T>(lambda), constant<T>(lambda * alpha), T(1)};
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    elu_forward(t, d, function<T>());
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    elu_backward(t, d, function<T>());
  }
};

}  // namespace

namespace ops {
extern constexpr Operator selu = describe<Selu>();
}

}  // namespace assay
