#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct L1Loss : PairLoss {
  static constexpr std::string_view name = "l1_loss";
  static constexpr std::string_view math = "loss = mean |input - target|";
  static constexpr std::string_view source = "torch.nn.functional.l1_loss";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.l1_loss", "torch.nn.L1Loss", "L1Loss"};
  static constexpr Attribute attributes[] = {reduction};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\""}, {"S=2x3x4", "reduction=\"none\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_pairs(name, d, inputs, a); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_losses(t, d, a, [](const T& x, const T& y) { return abs(x - y); });
  }
  // The sign of a difference is exact: it is 0 only of equal numbers.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_difference_gradients(t, d, a, [](const T& difference, const T& g) { return sign(difference) * g; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator l1_loss = describe<L1Loss>();
}

}  // namespace assay
