#include "assay/golden/parallel.h"
#include "assay/operators/engine/adaptive_pool.h"
#include "assay/operators/engine/pool.h"

namespace assay {
namespace {

struct AdaptiveAvgPool {
  static constexpr std::string_view name = "adaptive_avg_pool";
  static constexpr std::string_view math = "y = mean of x over each of output_size windows that cover it";
  static constexpr std::string_view source = "torch.nn.AdaptiveAvgPool2d";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.adaptive_avg_pool1d",
                                                 "torch.nn.functional.adaptive_avg_pool2d",
                                                 "torch.nn.functional.adaptive_avg_pool3d",
                                                 "adaptive_avg_pool1d",
                                                 "adaptive_avg_pool2d",
                                                 "adaptive_avg_pool3d"};
  static constexpr Attribute attributes[] = {output_size};
  static constexpr Arg args[] = {
      {"x", "A*,S*", Role::input},
      {"grad_y", "A*,O*", Role::grad_output},
      {.name = "y", .shape = "A*,O*", .role = Role::output, .terms = "window"},
      {.name = "grad_x", .shape = "A*,S*", .role = Role::grad_input, .terms = "covering"},
  };
  static constexpr Example examples[] = {{"A=2x3,S=11", "output_size=4"},
                                         {"A=1x2,S=5x7", "output_size=[3,1]"},
                                         {"A=2,S=3x5x4", "output_size=[2,7,4]"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_adaptive_pool(name, d, shape_of_input(inputs, "x"), a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], y = t["y"];
    const auto seen = adaptive_windows(name, t.shape("x"), attr).seen;
    each_in_parallel(d.at("A"), grain_of(4 * d.at("S")), [&](std::int64_t a) {
      for (std::size_t o = 0; o < seen.size(); ++o) {
        const auto size = static_cast<std::int64_t>(seen[o].size());
        const T total = sum<T>(size, [&](auto i) { return x(a, seen[o][static_cast<std::size_t>(i)]); });
        y(a, static_cast<std::int64_t>(o)) = total / number<T>(size);
      }
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto g = t["grad_y"], grad_x = t["grad_x"];
    const auto seen = adaptive_windows(name, t.shape("x"), attr).seen;
    each_in_parallel(d.at("A"), grain_of(16 * d.at("S")), [&](std::int64_t a) {
      Collected<T> collected(d.at("S"));
      for (std::size_t o = 0; o < seen.size(); ++o) {
        const T share = g(a, static_cast<std::int64_t>(o)) / number<T>(std::ssize(seen[o]));
        for (const std::int64_t i : seen[o]) collected.add(i, share);
      }
      for (std::int64_t s = 0; s < d.at("S"); ++s) grad_x(a, s) = collected.total(s);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator adaptive_avg_pool = describe<AdaptiveAvgPool>();
}

}  // namespace assay
