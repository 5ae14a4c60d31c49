#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/pool.h"

namespace assay {
namespace {

struct AvgPool {
  static constexpr std::string_view name = "avg_pool";
  static constexpr std::string_view math = "y = sum of x over a window / elements of the window";
  static constexpr std::string_view source = "torch.nn.AvgPool2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.avg_pool1d",
                                                 "torch.nn.functional.avg_pool2d",
                                                 "torch.nn.functional.avg_pool3d",
                                                 "avg_pool1d",
                                                 "avg_pool2d",
                                                 "avg_pool3d",
                                                 "AveragePool",
                                                 "AvgPool"};
  static constexpr Attribute attributes[] = {
      {"kernel_size", "null", "extent of a window, or one per dimension"},
      {"stride", "null", "from window to window; null: kernel_size"},
      {"padding", "[0]", "zeros at both ends"},
      {"ceil_mode", "false", "a last window may reach beyond the padding"},
      {"count_include_pad", "true", "padding counts as elements of the window"},
      {"divisor_override", "null", "divide by this instead"}};
  static constexpr Arg args[] = {
      {"x", "A*,S*", Role::input},
      {"grad_y", "A*,O*", Role::grad_output},
      {.name = "y", .shape = "A*,O*", .role = Role::output, .terms = "window"},
      {.name = "grad_x", .shape = "A*,S*", .role = Role::grad_input, .terms = "covering"},
  };
  static constexpr Example examples[] = {
      {"A=2x3,S=11", "kernel_size=4,stride=3,padding=1,ceil_mode=true,count_include_pad=false"},
      {"A=1x2,S=5x7", "kernel_size=3,stride=[2,1],padding=1"},
      {"A=2,S=3x5x4", "kernel_size=[2,3,1],divisor_override=5"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    bind_pool(d, pool_axes(name, x, a), x);
    if (a.has("divisor_override") && a.integer("divisor_override") == 0)
      throw Error("avg_pool: divisor_override is 0; expected another number");
  }

  // What each window's sum is divided by. The padding counts up to its own end, not beyond (ceil_mode).
  static std::vector<std::int64_t> divisors(std::span<const PoolAxis> axes, const Attributes& a,
                                            const std::vector<std::vector<std::int64_t>>& seen) {
    std::vector<std::int64_t> extents = {1};
    for (const PoolAxis& p : axes) {
      std::vector<std::int64_t> finer;
      for (const std::int64_t extent : extents) {
        for (std::int64_t o = 0; o < p.out; ++o)
          finer.push_back(extent * (std::min(p.start(o) + p.kernel, p.in + p.padding) - p.start(o)));
      }
      extents = std::move(finer);
    }
    for (std::size_t o = 0; o < seen.size(); ++o) {
      if (!a.flag("count_include_pad")) extents[o] = static_cast<std::int64_t>(seen[o].size());
      if (a.has("divisor_override")) extents[o] = a.integer("divisor_override");
    }
    return extents;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], y = t["y"];
    const auto axes = pool_axes(name, t.shape("x"), attr);
    const auto seen = windows(axes);
    const auto divisor = divisors(axes, attr, seen);
    for (std::int64_t a = 0; a < d.at("A"); ++a) {
      for (std::size_t o = 0; o < seen.size(); ++o) {
        const auto size = static_cast<std::int64_t>(seen[o].size());
        const T total = sum<T>(size, [&](auto i) { return x(a, seen[o][static_cast<std::size_t>(i)]); });
        y(a, static_cast<std::int64_t>(o)) = total / number<T>(divisor[o]);
      }
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto g = t["grad_y"], grad_x = t["grad_x"];
    const auto axes = pool_axes(name, t.shape("x"), attr);
    const auto seen = windows(axes);
    const auto divisor = divisors(axes, attr, seen);
    for (std::int64_t a = 0; a < d.at("A"); ++a) {
      Collected<T> collected(d.at("S"));
      for (std::size_t o = 0; o < seen.size(); ++o) {
        const T share = g(a, static_cast<std::int64_t>(o)) / number<T>(divisor[o]);
        for (const std::int64_t i : seen[o]) collected.add(i, share);
      }
      for (std::int64_t s = 0; s < d.at("S"); ++s) grad_x(a, s) = collected.total(s);
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator avg_pool = describe<AvgPool>();
}

}  // namespace assay
