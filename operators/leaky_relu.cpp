#include "assay/operators/engine/piecewise.h"
#include "assay/operators/engine/unary.h"

namespace assay {
namespace {

struct LeakyRelu {
  static constexpr std::string_view name = "leaky_relu";
  static constexpr std::string_view math = "y = x where x > 0, else negative_slope x";
  static constexpr std::string_view source = "torch.nn.functional.leaky_relu; Maas et al. 2013";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.leaky_relu", "torch.nn.LeakyReLU",
                                                 "npu_leaky_relu", "LeakyReLU", "LeakyRelu"};
  static constexpr Attribute attributes[] = {{"negative_slope", "0.01", "factor of what is not above 0"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5", "negative_slope=0.2"}};
  static constexpr Seen seen[] = {{"negative_slope", "0.01", "torch.nn.LeakyReLU"},
                                  {"negative_slope", "0.1", "Darknet"},
                                  {"negative_slope", "0.2", "DCGAN, arXiv:1511.06434"}};
  static constexpr Solved solved[] = {
      {.attribute = "negative_slope", .by = Solved::By::bisection, .low = 1e-4, .high = 1}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T slope = constant<T>(a.real("negative_slope"));
    map_forward(t, d, [&](const T& x) {
      return by_side<T>(
          x, [&] { return x; }, [&] { return slope * x; });
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T slope = constant<T>(a.real("negative_slope"));
    map_gradient(t, d, [&](const T& x, const T& g) { return x > T(0) ? g : slope * g; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator leaky_relu = describe<LeakyRelu>();
}

}  // namespace assay
