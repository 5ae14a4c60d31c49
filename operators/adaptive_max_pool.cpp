#include "assay/golden/parallel.h"
#include "assay/operators/engine/adaptive_pool.h"
#include "assay/operators/engine/order.h"
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
  static std::int64_t winner(const View<T>& x, std::int64_t a, const std::vector<std::int64_t>& seen) {
    const auto at = [&](std::int64_t i) { return seen[static_cast<std::size_t>(i)]; };
    return at(
        extreme_position(std::ssize(seen), false, [&](std::int64_t i) -> const T& { return x(a, at(i)); }));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], y = t["y"];
    const auto index = t.output_index("index");
    const auto seen = adaptive_windows(name, t.shape("x"), attr).seen;
    each_in_parallel(d.at("A"), grain_of(4 * d.at("S")), [&](std::int64_t a) {
      for (std::size_t k = 0; k < seen.size(); ++k) {
        const auto o = static_cast<std::int64_t>(k);
        index(a, o) = winner(x, a, seen[k]);
        y(a, o) = x(a, index(a, o));
      }
    });
    if (!attr.flag("return_indices")) t.slots().erase("index");
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const auto seen = adaptive_windows(name, t.shape("x"), attr).seen;
    each_in_parallel(d.at("A"), grain_of(16 * d.at("S")), [&](std::int64_t a) {
      Collected<T> collected(d.at("S"));
      for (std::size_t o = 0; o < seen.size(); ++o)
        collected.add(winner(x, a, seen[o]), g(a, static_cast<std::int64_t>(o)));
      for (std::int64_t s = 0; s < d.at("S"); ++s) grad_x(a, s) = collected.total(s);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adaptive_max_pool = describe<AdaptiveMaxPool>();
}

}  // namespace assay
