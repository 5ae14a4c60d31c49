#include "assay/operators/axes.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

// S*: the shape of x; R*: what is left of it; "summed": the extents that are gone.
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
      {.name = "y", .shape = "R*", .role = Role::output, .terms = "summed"},
      {.name = "grad_x", .shape = "S*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"S=3x5x7"}, {"S=5x37", "dims=[1]"}, {"S=2x3x4x2", "dims=[-1,1],keepdim=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static std::vector<bool> summed_axes(const Shape& x, const Attributes& a) {
    return axes(a.has("dims") ? a.integers("dims") : std::vector<std::int64_t>(), x.size());
  }
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const std::vector<bool> gone = summed_axes(x, a);
    Shape left, summed;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (gone[i]) summed.push_back(x[i]);
      if (!gone[i] || a.flag("keepdim")) left.push_back(gone[i] ? 1 : x[i]);
    }
    d.set("S", x);
    d.set("R", left);
    d.set("summed", summed);
  }

  // Element r of y is the sum of x at left[r] + terms[i] over i.
  struct Positions {
    std::vector<std::int64_t> left, terms;
  };
  static Positions split(const Shape& x, const Attributes& a) {
    std::vector<bool> gone = summed_axes(x, a);
    Positions p;
    p.terms = positions(x, gone);
    gone.flip();
    p.left = positions(x, gone);
    return p;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const Positions p = split(d.extents("S"), a);
    const auto terms = static_cast<std::int64_t>(p.terms.size());
    for (std::size_t r = 0; r < p.left.size(); ++r) {
      y.data()[r] =
          sum<T>(terms, [&](auto i) { return x(p.left[r] + p.terms[static_cast<std::size_t>(i)]); });
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto g = t["grad_y"], grad_x = t["grad_x"];
    const Positions p = split(d.extents("S"), a);
    for (std::size_t r = 0; r < p.left.size(); ++r) {
      for (const std::int64_t i : p.terms) grad_x(p.left[r] + i) = g.data()[r];
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_sum = describe<ReduceSum>();
}

}  // namespace assay
