#include "assay/golden/error.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct HardTanh {
  static constexpr std::string_view name = "hardtanh";
  static constexpr std::string_view math = "y = min(max(x, min_val), max_val)";
  static constexpr std::string_view source = "torch.nn.functional.hardtanh";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.hardtanh"};
  static constexpr Attribute attributes[] = {{"min_val", "-1", "lower limit"},
                                             {"max_val", "1", "upper limit"}};
  static constexpr auto args = unary_args(-4, 4, everywhere, Exact::value);
  static constexpr Example examples[] = {{"N=24", "min_val=-1.001953125,max_val=0.751953125"},
                                         {"N=3x5", "min_val=0.001953125,max_val=3"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims&, InputShapes, const Attributes& a) {
    if (!(a.real("min_val") <= a.real("max_val"))) {
      throw Error("hardtanh: min_val is {} and max_val {}; expected no less", a.real("min_val"),
                  a.real("max_val"));
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T low = constant<T>(a.real("min_val")), high = constant<T>(a.real("max_val"));
    map_forward(t, d, [&](const T& x) { return minimum<T>(maximum<T>(x, low), high); });
  }

  // 0 at the limits themselves, unlike torch.clamp, and at NaN.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T low = constant<T>(a.real("min_val")), high = constant<T>(a.real("max_val"));
    map_gradient(t, d, [&](const T& x, const T& g) { return x > low && x < high ? g : T(0); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator hardtanh = describe<HardTanh>();
}

}  // namespace assay
