#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

// C*: the extent of `dim`; A* before it, B* behind.
struct IndexSelect {
  static constexpr std::string_view name = "index_select";
  static constexpr std::string_view math = "y(a, n, b) = x(a, index(n), b)";
  static constexpr std::string_view source = "torch.index_select";
  static constexpr std::string_view aliases[] = {"torch.index_select", "ops.index_select"};
  static constexpr Attribute attributes[] = {{"dim", "0", "the dimension that index goes along"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "A*,C*,B*", .role = Role::input, .domain = everywhere},
      {.name = "index", .shape = "N", .role = Role::index, .indexes = "C"},
      {"grad_y", "A*,R*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,R*,B*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "hits"},
  };
  static constexpr Example examples[] = {
      {"A=,C=5,B=3,N=9"}, {"A=2x3,C=4,B=2,N=7", "dim=2"}, {"A=2,C=6,B=,N=3", "dim=-1"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true;
  static constexpr Shares takes_shares = Shares::of_all;
  static constexpr Rows rows = Rows::routed;
  static constexpr SameAxis same_axis[] = {{"R", "N"}, {"C", "N"}};

  // R*: the extent of dim in y; a scalar has none. "hits": the most that one index occurs.
  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const InputShape& index = *find_input(inputs, "index");
    bind_axis(d, x, a.integer("dim"));
    const std::int64_t N = element_count(index.shape);
    if (x.empty() && N != 1)
      throw Error("index_select: x is a scalar, index has {} entries; expected one", N);
    d.set("R", x.empty() ? Shape() : Shape{N});
    d.set("hits", N);
    if (index.indices == nullptr) return;
    Positions known = index.indices->indices();
    for (std::int64_t& i : known) {
      if (i < 0 || i >= d.at("C")) i = nowhere;
    }
    d.set("hits", Copies(known, d.at("C")).most());
  }

  template <class T>
  static Positions from(Tensors<T>& t, const Attributes& a) {
    const Shape& x = t.shape("x");
    const Shape stride = strides_of(x);
    const std::size_t dim = axis(a.integer("dim"), x.size());
    const std::vector<std::int64_t>& index = t.slot("index").indices;
    return positions_of(t.shape("y"), [&](std::size_t i, std::int64_t n) {
      return (i == dim ? index[static_cast<std::size_t>(n)] : n) * stride[i];
    });
  }
  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    copy_forward(t.slot("x").values, from(t, a), t.slot("y").values);
  }
  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes& a) {
    copy_backward(t.slot("grad_y").values, from(t, a), t.slot("grad_x").values);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator index_select = describe<IndexSelect>();
}

}  // namespace assay
