#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Neg {
  static constexpr std::string_view name = "neg";
  static constexpr std::string_view math = "y = -x";
  static constexpr std::string_view source = "IEEE 754-2019, sec. 5.5.1";
  static constexpr std::string_view aliases[] = {"torch.neg", "torch.negative", "Neg"};
  static constexpr auto args = unary_args(-2, 2, everywhere, Exact::value);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return -x; });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T&, const T& g) { return -g; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator neg = describe<Neg>();
}

}  // namespace assay
