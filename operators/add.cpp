#include "assay/operators/engine/binary.h"

namespace assay {
namespace {

struct Add : Binary {
  static constexpr std::string_view name = "add";
  static constexpr std::string_view math = "y = a + alpha b";
  static constexpr std::string_view source = "torch.add";
  static constexpr std::string_view aliases[] = {"torch.add", "Add"};
  static constexpr Attribute attributes[] = {{"alpha", "1", "what b is multiplied with"}};
  static constexpr auto args = args_with();
  static constexpr Example examples[] = {
      {"A=3x4,B="}, {"A=2x1x3,B=5x1", "alpha=-0.5"}, {"A=4,B=2x4", "alpha=3"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true;
  static constexpr Shares takes_shares = Shares::of_all;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    if (attr.real("alpha") == 1) return map(t, d, [](const T& a, const T& b) { return a + b; });
    const T alpha = constant<T>(attr.real("alpha"));
    map(t, d, [&](const T& a, const T& b) { return a + alpha * b; });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const bool plain = attr.real("alpha") == 1;
    const T alpha = constant<T>(attr.real("alpha"));
    map_gradients<Slope::moved>(
        t, d, [](const T&, const T&, const T& g) { return g; },
        [&](const T&, const T&, const T& g) { return plain ? g : g * alpha; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator add = describe<Add>();
}

}  // namespace assay
