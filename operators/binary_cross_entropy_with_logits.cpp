#include "assay/operators/engine/pair_loss.h"
#include "assay/operators/engine/silu.h"

namespace assay {
namespace {

struct BinaryCrossEntropyWithLogits : PairLoss {
  static constexpr std::string_view name = "binary_cross_entropy_with_logits";
  static constexpr std::string_view math = "loss = mean ((1 - target) input + log(1 + exp(-input)))";
  static constexpr std::string_view source = "torch.nn.functional.binary_cross_entropy_with_logits";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.binary_cross_entropy_with_logits"};
  static constexpr Attribute attributes[] = {reduction};
  static constexpr auto args =
      args_with({.name = "input", .shape = "S*", .role = Role::input, .low = -8, .high = 8},
                {.name = "target", .shape = "S*", .role = Role::input, .low = 0, .high = 1});
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\""}, {"S=2x3x4", "reduction=\"none\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_pairs(name, d, inputs, a); }

  // log(1 + exp(-x)) = max(-x, 0) + log1p(exp(-|x|))
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_losses(t, d, a, [](const T& x, const T& y) {
      return (T(1) - y) * x + (maximum<T>(-x, T(0)) + log1p(exp(-abs(x))));
    });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_gradients<T>(
        t, d, a, [](const T& x, const T& y, const T& g) { return g * (stored(sigmoid<T>(x)) - y); },
        [](const T& x, const T&, const T& g) { return -(g * x); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator binary_cross_entropy_with_logits = describe<BinaryCrossEntropyWithLogits>();
}

}  // namespace assay
