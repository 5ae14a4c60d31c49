#include "assay/operators/engine/binary.h"

namespace assay {
namespace {

struct Mul : Binary {
  static constexpr std::string_view name = "mul";
  static constexpr std::string_view math = "y = a b";
  static constexpr std::string_view source = "torch.mul";
  static constexpr std::string_view aliases[] = {"torch.mul", "torch.multiply", "Mul"};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {{"A=3x4,B="}, {"A=2x1x3,B=5x1"}, {"A=4,B=2x4"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true;
  static constexpr std::string_view functional_inputs[] = {"a", "b"};
  static constexpr Shares takes_shares = Shares::of_one;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map(t, d, [](const T& a, const T& b) { return a * b; });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradients(
        t, d, [](const T&, const T& b, const T& g) { return g * b; },
        [](const T& a, const T&, const T& g) { return g * a; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator mul = describe<Mul>();
}

}  // namespace assay
