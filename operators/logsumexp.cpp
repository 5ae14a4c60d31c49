#include "assay/operators/engine/reduce.h"
#include "assay/operators/engine/sum_exp.h"

namespace assay {
namespace {

struct LogSumExp {
  static constexpr std::string_view name = "logsumexp";
  static constexpr std::string_view math = "y = log sum exp(x) over dims";
  static constexpr std::string_view source = "Blanchard, Higham and Higham 2021, eq. 1.3 (shifted)";
  static constexpr std::string_view aliases[] = {"torch.logsumexp", "ReduceLogSumExp"};
  static constexpr Attribute attributes[] = {
      {"dims", "null", "the dimensions that are summed; null or []: all"},
      {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Arg args[] = {
      {"x", "S*", Role::input, -8, 8},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .terms = "reduced"},
  };
  static constexpr bool sums_of_rows = true;
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x11", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dims");
  }
  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    return dims_left(x, a, "dims");
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const Groups groups(d.extents("S"), a, "dims");
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      if (groups.size() == 0) {
        y(r) = log(T(0));
        continue;
      }
      const auto of_group = [&](std::int64_t i) { return x(groups(r, i)); };
      const SumExp<T> sums(groups.size(), of_group);
      y(r) = of_group(sums.top) + sums.log_total;
      // An infinite largest value has no shift: it is the result, unless there is a NaN.
      if (!isinf(of_group(sums.top))) continue;
      y(r) = of_group(0);
      for (std::int64_t i = 1; i < groups.size(); ++i) y(r) = maximum<T>(y(r), of_group(i));
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_backward(t, d, a, [](const T& x, const T& y, const T& g) { return g * exp(x - y); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator logsumexp = describe<LogSumExp>();
}

}  // namespace assay
