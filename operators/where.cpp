#include "assay/operators/engine/broadcast.h"

namespace assay {
namespace {

struct Where {
  static constexpr std::string_view name = "where";
  static constexpr std::string_view math = "y = condition ? a : b";
  static constexpr std::string_view source = "torch.where";
  static constexpr std::string_view aliases[] = {"torch.where", "Where", "Select"};
  static constexpr Arg args[] = {
      {.name = "condition", .shape = "C*", .role = Role::index, .low = 0, .high = 1},
      {.name = "a", .shape = "A*", .role = Role::input, .domain = everywhere},
      {.name = "b", .shape = "B*", .role = Role::input, .domain = everywhere},
      {"grad_y", "Y*", Role::grad_output},
      {.name = "y", .shape = "Y*", .role = Role::output, .exact = Exact::bits},
      {.name = "grad_a", .shape = "A*", .role = Role::grad_input, .terms = "copies_A"},
      {.name = "grad_b", .shape = "B*", .role = Role::grad_input, .terms = "copies_B"},
  };
  static constexpr Example examples[] = {{"C=3x4,A=,B=3x4"}, {"C=5x1,A=2x1x3,B=3"}, {"C=,A=4,B=2x1"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr Operand operand_a = {"a", "A"}, operand_b = {"b", "B"};

  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    bind_broadcast(d, inputs, {{"condition", "C"}, operand_a, operand_b});
  }

  // Element i of y is an element of a.
  template <class T>
  static auto chooser(Tensors<T>& t, const Dims& d) {
    return [condition = t.index("condition").data(),
            at = broadcast_positions(d.extents("C"), d.extents("Y"))](std::int64_t i) {
      return condition[at[static_cast<std::size_t>(i)]] != 0;
    };
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto is_a = chooser(t, d);
    const Broadcast<T> a(t, d, operand_a), b(t, d, operand_b);
    const std::int64_t Y = d.at("Y");
    T* y = t["y"].data();
    for (std::int64_t i = 0; i < Y; ++i) y[i] = is_a(i) ? a(i) : b(i);
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto is_a = chooser(t, d);
    const T* g = t["grad_y"].data();
    collect_gradient(t, d, operand_a, [&](auto i) { return is_a(i) ? g[i] : T(0); });
    collect_gradient(t, d, operand_b, [&](auto i) { return is_a(i) ? T(0) : g[i]; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator where = describe<Where>();
}

}  // namespace assay
