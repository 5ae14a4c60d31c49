#include "assay/operators/engine/huber.h"

namespace assay {
namespace {

struct HuberLoss : PairLoss {
  static constexpr std::string_view name = "huber_loss";
  static constexpr std::string_view math =
      "loss = mean h(input - target), h(x) = x^2 / 2 up to |x| = delta, delta (|x| - delta / 2) beyond";
  static constexpr std::string_view source = "torch.nn.functional.huber_loss; Huber 1964 eq. 1.5";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.huber_loss"};
  static constexpr Attribute attributes[] = {reduction, {"delta", "1", "where the line begins"}};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\",delta=0.3"}, {"S=2x3x4", "reduction=\"none\",delta=2"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_pairs(name, d, inputs, a);
    if (!(a.real("delta") > 0)) throw Error("huber_loss: delta is {}; expected above 0", a.real("delta"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T delta = constant<T>(a.real("delta"));
    map_losses(t, d, a, [&](const T& x, const T& y) { return huber<T>(x - y, delta); });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T delta = constant<T>(a.real("delta"));
    map_difference_gradients(
        t, d, a, [&](const T& difference, const T& g) { return g * huber_slope<T>(difference, delta); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator huber_loss = describe<HuberLoss>();
}

}  // namespace assay
