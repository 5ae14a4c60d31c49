#include "assay/golden/error.h"
#include "assay/operators/engine/order.h"
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
  static std::int64_t winner(const View<T>& x, std::int64_t a, const std::vector<std::int64_t>& seen) {
    const auto at = [&](std::int64_t i) { return seen[static_cast<std::size_t>(i)]; };
    return at(extreme_position(static_cast<std::int64_t>(seen.size()), false,
                               [&](std::int64_t i) -> const T& { return x(a, at(i)); }));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], y = t["y"];
    const auto index = t.output_index("index");
    const auto seen = windows(pool_axes(name, t.shape("x"), attr));
    for (std::int64_t a = 0; a < d.at("A"); ++a) {
      for (std::size_t k = 0; k < seen.size(); ++k) {
        const auto o = static_cast<std::int64_t>(k);
        index(a, o) = winner(x, a, seen[k]);
        y(a, o) = x(a, index(a, o));
      }
    }
    if (!attr.flag("return_indices")) t.slots().erase("index");
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const auto seen = windows(pool_axes(name, t.shape("x"), attr));
    for (std::int64_t a = 0; a < d.at("A"); ++a) {
      Collected<T> collected(d.at("S"));
      for (std::size_t o = 0; o < seen.size(); ++o)
        collected.add(winner(x, a, seen[o]), g(a, static_cast<std::int64_t>(o)));
      for (std::int64_t s = 0; s < d.at("S"); ++s) grad_x(a, s) = collected.total(s);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator max_pool = describe<MaxPool>();
}

}  // namespace assay
