#include "assay/operators/engine/huber.h"

namespace assay {
namespace {

struct SmoothL1Loss : PairLoss {
  static constexpr std::string_view name = "smooth_l1_loss";
  static constexpr std::string_view math =
      "loss = mean h(input - target), h(x) = x^2 / (2 beta) up to |x| = beta, |x| - beta / 2 beyond";
  static constexpr std::string_view source = "torch.nn.functional.smooth_l1_loss; arXiv:1504.08083 eq. 3";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.smooth_l1_loss"};
  static constexpr Attribute attributes[] = {reduction,
                                             {"beta", "1", "where the line begins; 0: everywhere"}};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {{"S=24"},
                                         {"S=3x5", "reduction=\"sum\",beta=0.3"},
                                         {"S=2x3x4", "reduction=\"none\",beta=2"},
                                         {"S=7", "beta=0"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_pairs(name, d, inputs, a);
    if (!(a.real("beta") >= 0))
      throw Error("smooth_l1_loss: beta is {}; expected 0 or above", a.real("beta"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T beta = constant<T>(a.real("beta"));
    const bool is_line = a.real("beta") == 0;
    map_losses(t, d, a, [&](const T& x, const T& y) {
      const T difference = x - y;
      return is_line ? abs(difference) : huber<T>(difference, beta) / beta;
    });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T beta = constant<T>(a.real("beta"));
    const bool is_line = a.real("beta") == 0;
    map_difference_gradients(t, d, a, [&](const T& difference, const T& g) {
      return is_line ? sign(difference) * g : g * (huber_slope<T>(difference, beta) / beta);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator smooth_l1_loss = describe<SmoothL1Loss>();
}

}  // namespace assay
