#include "assay/operators/engine/gather.h"

#include "assay/golden/error.h"

namespace assay {

Positions gather_positions(const Shape& x, const Shape& index_shape, std::span<const std::int64_t> index,
                           std::int64_t dim) {
  const Shape stride = strides_of(x);
  const std::size_t along = axis(dim, x.size());
  Positions from = positions_of(
      index_shape, [&](std::size_t d, std::int64_t i) { return d == along ? 0 : i * stride[d]; });
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t extent = x.empty() ? 1 : x[along], step = x.empty() ? 1 : stride[along];
    from[i] = index[i] < 0 || index[i] >= extent ? nowhere : from[i] + index[i] * step;
  }
  return from;
}

void bind_gather(Dims& d, InputShapes inputs, std::string_view op, std::int64_t dim) {
  const Shape& x = shape_of_input(inputs, "x");
  const InputShape& index = *find_input(inputs, "index");
  const std::size_t along = axis(dim, x.size());
  bool fits = x.size() == index.shape.size();
  for (std::size_t i = 0; fits && i < x.size(); ++i) fits = i == along || index.shape[i] <= x[i];
  if (!fits) {
    throw Error(
        "{}: index has shape {}, x {}; expected as many dimensions and, but for dim {}, no larger extents",
        op, to_string(index.shape), to_string(x), along);
  }
  d.set("C", x.empty() ? 1 : x[along]);
  if (index.indices == nullptr) {
    d.set("hits", index.shape.empty() ? 1 : element_count(index.shape) == 0 ? 0 : index.shape[along]);
  } else {
    const Positions from = gather_positions(x, index.shape, index.indices->indices(), dim);
    d.set("hits", Copies(from, element_count(x)).most());
  }
}

namespace {

struct Gather {
  static constexpr std::string_view name = "gather";
  static constexpr std::string_view math = "y(i, j, k) = x(i, index(i, j, k), k), here along dim 1";
  static constexpr std::string_view source = "torch.gather";
  static constexpr std::string_view aliases[] = {"torch.gather", "GatherElements", "gather_elements",
                                                 "GatherD"};
  static constexpr Attribute attributes[] = {{"dim", "0", "the dimension that index goes along"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "X*", .role = Role::input, .domain = everywhere},
      {.name = "index", .shape = "I*", .role = Role::index, .indexes = "C"},
      {"grad_y", "I*", Role::grad_output},
      {.name = "y", .shape = "I*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x", .shape = "X*", .role = Role::grad_input, .terms = "hits"},
  };
  static constexpr Example examples[] = {{"X=4x3,I=9x2"}, {"X=2x5x3,I=2x7x3", "dim=-2"}, {"X=,I="}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr SameAxis same_axis[] = {{"I", "X"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_gather(d, inputs, name, a.integer("dim"));
  }
  template <class T>
  static Positions from(Tensors<T>& t, const Attributes& a) {
    return gather_positions(t.shape("x"), t.shape("index"), t.slot("index").indices, a.integer("dim"));
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
extern constexpr Operator gather = describe<Gather>();
}

}  // namespace assay
