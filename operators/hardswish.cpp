#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct HardSwish {
  static constexpr std::string_view name = "hardswish";
  static constexpr std::string_view math = "y = x min(max(x + 3, 0), 6) / 6";
  static constexpr std::string_view source = "torch.nn.functional.hardswish; arXiv:1905.02244 eq. 1";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.hardswish",
                                                 "torch.nn.Hardswish",
                                                 "npu_hardswish",
                                                 "Hardswish",
                                                 "HardSwish",
                                                 "HSwish"};
  static constexpr auto args = unary_args(-6, 6);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) {
      return without_cancellation<T>(
          [&] { return x * minimum<T>(maximum<T>(x + T(3), T(0)), T(6)) / T(6); },
          [&] { return x * stored(minimum<T>(maximum<T>(x / T(6) + T(0.5), T(0)), T(1))); });
    });
  }

  // At the two corners as torch: 0 at -3, 1 at 3.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) {
      if (x <= T(-3)) return T(0);
      return x >= T(3) ? g : g * (x / T(3) + T(0.5));
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator hardswish = describe<HardSwish>();
}

}  // namespace assay
