#include "assay/golden/error.h"
#include "assay/operators/engine/largest_of_windows.h"
#include "assay/operators/engine/pool.h"

namespace assay {
namespace {

struct MaxPool {
  static constexpr std::string_view name = "max_pool";
  static constexpr std::string_view math = "y = max of x over a window, index = where it is first";
  static constexpr std::string_view source = "torch.nn.MaxPool2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.max_pool1d",
                                                 "torch.nn.functional.max_pool2d",
                                                 "torch.nn.functional.max_pool3d",
                                                 "max_pool1d",
                                                 "max_pool2d",
                                                 "max_pool3d",
                                                 "MaxPool"};
  static constexpr Attribute attributes[] = {
      {"kernel_size", "null", "extent of a window, or one per dimension"},
      {"stride", "null", "from window to window; null: kernel_size"},
      {"padding", "[0]", "elements at both ends that never win"},
      {"dilation", "[1]", "distance of a window's elements"},
      {"ceil_mode", "false", "a last window may reach beyond the padding"},
      {"return_indices", "false", "index counts the spatial elements in C order"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "A*,S*", .role = Role::input, .domain = everywhere},
      {"grad_y", "A*,O*", Role::grad_output},
      {.name = "y", .shape = "A*,O*", .role = Role::output, .exact = Exact::value},
      {"index", "A*,O*", Role::output_index},
      {.name = "grad_x", .shape = "A*,S*", .role = Role::grad_input, .terms = "covering"},
  };
  static constexpr Example examples[] = {
      {"A=1x2,S=11", "kernel_size=3,stride=2,padding=1,ceil_mode=true"},
      {"A=1,S=4x9", "kernel_size=[3,2],stride=1,dilation=[1,3],return_indices=true"},
      {"A=2,S=3x5x4", "kernel_size=[2,3,1]"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const auto axes = pool_axes(name, x, a);
    for (const PoolAxis& p : axes) {
      for (std::int64_t o = 0; o < p.out; ++o) {
        std::int64_t first = p.start(o);
        if (first < 0) first += (-first + p.dilation - 1) / p.dilation * p.dilation;
        if (first >= p.in) {
          throw Error("max_pool: window {} holds nothing but padding; x has shape {}", o, to_string(x));
        }
      }
    }
    bind_pool(d, axes, x);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    largest_of_windows(t, d, windows(pool_axes(name, t.shape("x"), attr)));
    if (!attr.flag("return_indices")) t.slots().erase("index");
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    gradient_of_largest(t, d, windows(pool_axes(name, t.shape("x"), attr)));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator max_pool = describe<MaxPool>();
}

}  // namespace assay
