#include "assay/operators/engine/pair_loss.h"

namespace assay {
namespace {

struct BinaryCrossEntropy : PairLoss {
  static constexpr std::string_view name = "binary_cross_entropy";
  static constexpr std::string_view math =
      "loss = -mean (target log(input) + (1 - target) log(1 - input)), logarithms of at least -100";
  static constexpr std::string_view source = "torch.nn.functional.binary_cross_entropy";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.binary_cross_entropy"};
  static constexpr Attribute attributes[] = {reduction};
  static constexpr auto args =
      args_with({.name = "input", .shape = "S*", .role = Role::input, .low = 0.01, .high = 0.99},
                {.name = "target", .shape = "S*", .role = Role::input, .low = 0, .high = 1});
  static constexpr Example examples[] = {
      {"S=24"}, {"S=3x5", "reduction=\"sum\""}, {"S=2x3x4", "reduction=\"none\""}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_pairs(name, d, inputs, a); }

  // At least -100, so that a wrong 0 or 1 costs something finite.
  template <class T>
  static T log_of(const T& x) {
    return maximum<T>(log(x), T(-100));
  }
  template <class T>
  static T log_of_rest(const T& x) {
    return without_cancellation<T>([&] { return maximum<T>(log1p(-x), T(-100)); },
                                   [&] { return maximum<T>(log(T(1) - x), T(-100)); });
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_losses(t, d, a,
               [](const T& x, const T& y) { return (y - T(1)) * log_of_rest<T>(x) - y * log_of<T>(x); });
  }
  // Where input is 0 or 1, torch divides by this.
  static constexpr double least_divisor = 1e-12;
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    map_gradients<T>(
        t, d, a,
        [](const T& x, const T& y, const T& g) {
          return g * (x - y) / maximum<T>((T(1) - x) * x, constant<T>(least_divisor));
        },
        [](const T& x, const T&, const T& g) { return g * (log_of_rest<T>(x) - log_of<T>(x)); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator binary_cross_entropy = describe<BinaryCrossEntropy>();
}

}  // namespace assay
