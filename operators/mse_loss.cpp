#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct MseLoss : PairLoss {
  static constexpr std::string_view name = "mse_loss";
  static constexpr std::string_view math = "loss = mean (input - target)^2";
  static constexpr std::string_view source = "torch.nn.functional.mse_loss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.mse_loss", "torch.nn.MSELoss",
                                                 "MSELoss"};
  static constexpr Attribute attributes[] = {reduction};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\""}, {"S=2x3x4", "reduction=\"none\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_pairs(name, d, inputs, a); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_losses(t, d, a, [](const T& x, const T& y) {
      const T difference = x - y;
      return difference * difference;
    });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_difference_gradients(t, d, a, [](const T& difference, const T& g) { return T(2) * g * difference; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator mse_loss = describe<MseLoss>();
}

}  // namespace assay
