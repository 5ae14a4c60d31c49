#include "assay/operators/engine/reduce.h"

namespace assay {
namespace {

struct ReduceMean {
  static constexpr std::string_view name = "reduce_mean";
  static constexpr std::string_view math = "y = mean of x over dims";
  static constexpr std::string_view source = "Higham 2002, ch. 4";
  static constexpr std::string_view aliases[] = {"torch.mean", "mean", "ReduceMean", "ops.mean"};
  static constexpr Attribute attributes[] = {
      {"dims", "null", "the dimensions that are averaged; null or []: all"},
      {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Arg args[] = {
      {"x", "S*", Role::input},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "1"},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x11", "dims=[1]"}, {"S=2x3x4x5", "dims=[-1,1],keepdim=true"}};
  static constexpr Seen seen[] = {{"dims", "-1", "over channels"},
                                  {"dims", "0", "over tokens, as the gradient of a bias"},
                                  {"keepdim", "true", "where the result meets its input again"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dims");
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_forward(t, d, a, [](const T& x) { return x; });
    const T count = number<T>(d.at("reduced"));
    for (T& y : t.slot("y").values) y /= count;
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const T count = number<T>(d.at("reduced"));
    reduce_backward(t, d, a, [&](const T&, const T&, const T& g) { return g / count; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_mean = describe<ReduceMean>();
}

}  // namespace assay
