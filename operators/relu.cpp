#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct Relu {
  static constexpr std::string_view name = "relu";
  static constexpr std::string_view math = "y = max(x, 0)";
  static constexpr std::string_view source = "torch.nn.functional.relu";
  static constexpr std::string_view aliases[] = {"torch.relu", "torch.nn.functional.relu", "torch.nn.ReLU",
                                                 "ReLU", "Relu"};
  static constexpr auto args = unary_args(-8, 8, everywhere, Exact::value);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5"}};
  static constexpr std::string_view functional_inputs[] = {"x"};
  static constexpr bool never_negative = true;
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_forward(t, d, [](const T& x) { return maximum(x, T(0)); });
  }

  // 0 at 0; at NaN as torch: what is not <= 0 passes.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradient(t, d, [](const T& x, const T& g) { return x <= T(0) ? T(0) : g; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator relu = describe<Relu>();
}

}  // namespace assay
