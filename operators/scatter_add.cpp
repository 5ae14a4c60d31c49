#include "assay/golden/error.h"
#include "assay/operators/engine/gather.h"

namespace assay {
namespace {

struct ScatterAdd {
  static constexpr std::string_view name = "scatter_add";
  static constexpr std::string_view math =
      "y = x; then y(i, index(i, j, k), k) += src(i, j, k), here along dim 1";
  static constexpr std::string_view source = "torch.Tensor.scatter_add";
  static constexpr std::string_view aliases[] = {"torch.scatter_add", "torch.Tensor.scatter_add"};
  static constexpr Attribute attributes[] = {{"dim", "0", "the dimension that index goes along"}};
  static constexpr Arg args[] = {
      {"x", "X*", Role::input},
      {.name = "index", .shape = "I*", .role = Role::index, .indexes = "C"},
      {"src", "S*", Role::input},
      {.name = "grad_y", .shape = "X*", .role = Role::grad_output, .domain = everywhere},
      {.name = "y", .shape = "X*", .role = Role::output, .terms = "1 + hits"},
      {.name = "grad_x", .shape = "X*", .role = Role::grad_input, .exact = Exact::bits},
      {.name = "grad_src", .shape = "S*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"X=4x3,I=9x2,S=9x2"}, {"X=2x5x3,I=2x7x3,S=4x7x3", "dim=-2"}, {"X=,I=,S="}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr SameAxis same_axis[] = {{"I", "X"}, {"S", "X"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_gather(d, inputs, name, a.integer("dim"));
    const Shape &index = shape_of_input(inputs, "index"), &src = shape_of_input(inputs, "src");
    bool fits = src.size() == index.size();
    for (std::size_t i = 0; fits && i < src.size(); ++i) fits = index[i] <= src[i];
    if (!fits) {
      throw Error(
          "scatter_add: index has shape {}, src {}; expected as many dimensions and no larger extents",
          to_string(index), to_string(src));
    }
  }

  // Where in y and where in src each index leads.
  template <class T>
  static Positions to(Tensors<T>& t, const Attributes& a) {
    return gather_positions(t.shape("x"), t.shape("index"), t.slot("index").indices, a.integer("dim"));
  }
  template <class T>
  static Positions of_src(Tensors<T>& t) {
    return box_positions(t.shape("src"), 0, 0, t.shape("index"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const std::vector<T>&x = t.slot("x").values, &src = t.slot("src").values;
    const Positions in_src = of_src(t);
    const Copies arrivals(to(t, a), static_cast<std::int64_t>(x.size()));
    for (std::size_t j = 0; j < x.size(); ++j) {
      const auto hits = arrivals.of(static_cast<std::int64_t>(j));
      t.slot("y").values[j] = x[j];
      if (hits.empty()) continue;
      t.slot("y").values[j] = sum<T>(static_cast<std::int64_t>(hits.size()) + 1, [&](auto i) {
        if (i == 0) return x[j];
        const std::int64_t hit = hits[static_cast<std::size_t>(i - 1)];
        return src[static_cast<std::size_t>(in_src[static_cast<std::size_t>(hit)])];
      });
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims&, const Attributes& a) {
    const std::vector<T>& g = t.slot("grad_y").values;
    const Positions at = to(t, a), in_src = of_src(t);
    t.slot("grad_x").values = g;
    for (std::size_t i = 0; i < at.size(); ++i) {
      t.slot("grad_src").values[static_cast<std::size_t>(in_src[i])] = g[static_cast<std::size_t>(at[i])];
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator scatter_add = describe<ScatterAdd>();
}

}  // namespace assay
