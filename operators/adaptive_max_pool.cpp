#include "assay/operators/engine/adaptive_pool.h"
#include "assay/operators/engine/largest_of_windows.h"
#include "assay/operators/engine/pool.h"

namespace assay {
namespace {

struct AdaptiveMaxPool {
  static constexpr std::string_view name = "adaptive_max_pool";
  static constexpr std::string_view math =
      "y = max of x over each of output_size windows that cover it, index = where it is first";
  static constexpr std::string_view source = "torch.nn.AdaptiveMaxPool2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.adaptive_max_pool1d",
                                                 "torch.nn.functional.adaptive_max_pool2d",
                                                 "torch.nn.functional.adaptive_max_pool3d",
                                                 "adaptive_max_pool1d",
                                                 "adaptive_max_pool2d",
                                                 "adaptive_max_pool3d"};
  static constexpr Attribute attributes[] = {
      output_size, {"return_indices", "false", "index counts the spatial elements in C order"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "A*,S*", .role = Role::input, .domain = everywhere},
      {"grad_y", "A*,O*", Role::grad_output},
      {.name = "y", .shape = "A*,O*", .role = Role::output, .exact = Exact::value},
      {"index", "A*,O*", Role::output_index},
      {.name = "grad_x", .shape = "A*,S*", .role = Role::grad_input, .terms = "covering"},
  };
  static constexpr Example examples[] = {{"A=2x3,S=11", "output_size=4"},
                                         {"A=1,S=5x7", "output_size=[3,1],return_indices=true"},
                                         {"A=2,S=3x5x4", "output_size=[2,7,4]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_adaptive_pool(name, d, shape_of_input(inputs, "x"), a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    largest_of_windows(t, d, adaptive_windows(name, t.shape("x"), attr).seen);
    if (!attr.flag("return_indices")) t.slots().erase("index");
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    gradient_of_largest(t, d, adaptive_windows(name, t.shape("x"), attr).seen);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adaptive_max_pool = describe<AdaptiveMaxPool>();
}

}  // namespace assay
