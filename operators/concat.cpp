#include <numeric>
#include <string>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

struct Concat {
  static constexpr std::string_view name = "concat";
  static constexpr std::string_view math = "y = x_0, x_1, .. one behind the other along dim";
  static constexpr std::string_view source = "torch.cat";
  static constexpr std::string_view aliases[] = {"torch.cat", "torch.concat", "cat", "Concat"};
  static constexpr Attribute attributes[] = {{"dim", "0", "the dimension along which they follow"}};
  static constexpr Arg args[] = {
      {.name = "x_#", .shape = "X*", .role = Role::input, .domain = everywhere},
      {.name = "grad_y", .shape = "Y*", .role = Role::grad_output, .domain = everywhere},
      {.name = "y", .shape = "Y*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_x_#", .shape = "X*", .role = Role::grad_input, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"x_0=2x3,x_1=4x3,x_2=1x3"}, {"x_0=2x3x2,x_1=2x5x2", "dim=-2"}, {"x_0=7"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr Shares takes_shares = Shares::of_all;

  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    Shape dims(x.size());
    std::iota(dims.begin(), dims.end(), std::int64_t{0});
    dims[axis(a.integer("dim"), x.size())] = not_in_result;
    return dims;
  }

  static std::string member(std::string_view list, std::int64_t k) {
    return std::string(list) + std::to_string(k);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    Shape y = shape_of_input(inputs, "x_0");
    if (y.empty()) throw Error("concat: x_0 is a scalar; expected at least one dimension");
    const std::size_t along = axis(a.integer("dim"), y.size());
    for (std::int64_t k = 1;; ++k) {
      const InputShape* x = find_input(inputs, member("x_", k));
      if (x == nullptr) break;
      bool fits = x->shape.size() == y.size();
      for (std::size_t i = 0; fits && i < y.size(); ++i) fits = i == along || x->shape[i] == y[i];
      if (!fits || __builtin_add_overflow(y[along], x->shape[along], &y[along])) {
        throw Error("concat: {} has shape {}, x_0 {}; expected them to differ along dim {} alone", x->name,
                    to_string(x->shape), to_string(inputs[0].shape), along);
      }
    }
    d.set("Y", y);
  }

  // Calls f(k, where x_k lies in y).
  template <class T, class F>
  static void for_each_part(Tensors<T>& t, const Dims& d, const Attributes& a, F f) {
    const Shape& y = d.extents("Y");
    const std::size_t along = axis(a.integer("dim"), y.size());
    std::int64_t start = 0;
    for (std::int64_t k = 0; k < t.count("x_#"); ++k) {
      const Shape& x = t.shape(member("x_", k));
      f(k, box_positions(y, along, start, x));
      start += x[along];
    }
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    std::vector<T>& y = t.slot("y").values;
    for_each_part(t, d, a, [&](std::int64_t k, const Positions& at) {
      const std::vector<T>& x = t.slot(member("x_", k)).values;
      for (std::size_t i = 0; i < x.size(); ++i) y[static_cast<std::size_t>(at[i])] = x[i];
    });
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::vector<T>& g = t.slot("grad_y").values;
    for_each_part(t, d, a, [&](std::int64_t k, const Positions& at) {
      auto& grad = t.slots()[member("grad_x_", k)];
      grad.shape = t.shape(member("x_", k));
      grad.values.resize(at.size(), T(0));
      copy_forward(g, at, grad.values);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator concat = describe<Concat>();
}

}  // namespace assay
