#include "assay/golden/exact_sum.h"
#include "assay/operators/engine/reduce.h"

namespace assay {
namespace {

struct ReduceSum {
  static constexpr std::string_view name = "reduce_sum";
  static constexpr std::string_view math = "y = sum of x over dims";
  static constexpr std::string_view source = "Higham 2002, ch. 4";
  static constexpr std::string_view aliases[] = {"torch.sum", "sum", "ReduceSum", "ops.sum"};
  static constexpr Attribute attributes[] = {
      {"dims", "null", "the dimensions that are summed; null or []: all"},
      {"keepdim", "false", "keep them with extent 1"}};
  static constexpr Arg args[] = {
      {"x", "S*", Role::input},
      {"grad_y", "R*", Role::grad_output},
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "reduced"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x37", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};
  static constexpr Seen seen[] = {{"dims", "-1", "over channels"},
                                  {"dims", "0", "over tokens, as the gradient of a bias"},
                                  {"keepdim", "true", "where the result meets its input again"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true, is_only_sums = true, makes_shares = true;
  static constexpr Shares takes_shares = Shares::of_all;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_reduction(d, shape_of_input(inputs, "x"), a, "dims");
  }
  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    return dims_left(x, a, "dims");
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_forward(t, d, a, [](const T& x) { return x; });
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    reduce_backward(t, d, a, [](const T&, const T&, const T& g) { return g; });
  }

  static void certify(Tensors<float>& t, const Dims& d, const Attributes& a, Proofs& proofs) {
    const auto x = t["x"], y = t["y"];
    const Groups groups(d.extents("S"), a, "dims");
    std::vector<float> terms(static_cast<std::size_t>(groups.size()));
    for (std::int64_t r = 0; r < groups.count(); ++r) {
      for (std::size_t i = 0; i < terms.size(); ++i) terms[i] = x(groups(r, static_cast<std::int64_t>(i)));
      ExactSum sum;
      sum.add(std::span<const float>(terms));
      y(r) = static_cast<float>(sum.round(DType::float32));
    }
    proofs["y"].exact = groups.count();
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_sum = describe<ReduceSum>();
}

}  // namespace assay
