#include "assay/golden/error.h"
#include "assay/operators/engine/broadcast.h"

namespace assay {
namespace {

// Each limit is an attribute, a tensor that is broadcast, or absent.
struct Clip {
  static constexpr std::string_view name = "clip";
  static constexpr std::string_view math = "y = min(max(x, min), max)";
  static constexpr std::string_view source = "torch.clamp";
  static constexpr std::string_view aliases[] = {"torch.clamp", "torch.clip", "clamp", "Clip"};
  static constexpr Attribute attributes[] = {{"min", "null", "lower limit; null: none, or the input min"},
                                             {"max", "null", "upper limit; null: none, or the input max"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "X*", .role = Role::input, .domain = everywhere},
      {.name = "min",
       .shape = "L*",
       .role = Role::input,
       .low = -2,
       .high = 1,
       .optional = true,
       .domain = everywhere},
      {.name = "max",
       .shape = "H*",
       .role = Role::input,
       .low = -1,
       .high = 2,
       .optional = true,
       .domain = everywhere},
      {"grad_y", "Y*", Role::grad_output},
      {.name = "y", .shape = "Y*", .role = Role::output, .exact = Exact::value},
      {.name = "grad_x", .shape = "X*", .role = Role::grad_input, .terms = "copies_X"},
      {.name = "grad_min", .shape = "L*", .role = Role::grad_input, .optional = true, .terms = "copies_L"},
      {.name = "grad_max", .shape = "H*", .role = Role::grad_input, .optional = true, .terms = "copies_H"},
  };
  static constexpr Example examples[] = {{"X=4x6", "min=-1,max=0.5", "min,max"},
                                         {"X=3x4,L=4", "", "max"},
                                         {"X=7,H=", "min=-0.25", "min"},
                                         {"X=2x5,L=3x1x1,H=5"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr Operand operand_x = {"x", "X"}, operand_min = {"min", "L"}, operand_max = {"max", "H"};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_broadcast(d, inputs, {operand_x, operand_min, operand_max});
    for (const std::string_view limit : {"min", "max"}) {
      const bool given = find_input(inputs, limit) != nullptr;
      if (given && a.has(limit))
        throw Error("clip: {} is both an attribute and an input; leave one out", limit);
    }
  }

  // A limit for element i of y.
  template <class T>
  class Limit {
   public:
    Limit(Tensors<T>& t, const Dims& d, const Attributes& a, Operand o) : there_(a.has(o.name)) {
      if (there_) value_ = constant<T>(a.real(o.name));
      if (t.has(o.name)) tensor_.emplace(t, d, o);
    }
    explicit operator bool() const { return there_ || tensor_; }
    const T& operator()(std::int64_t i) const { return tensor_ ? (*tensor_)(i) : value_; }

   private:
    bool there_;
    T value_ = T(0);
    std::optional<Broadcast<T>> tensor_;
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const Broadcast<T> x(t, d, operand_x);
    const Limit<T> low(t, d, attr, operand_min), high(t, d, attr, operand_max);
    const std::int64_t Y = d.at("Y");
    T* y = t["y"].data();
    for (std::int64_t i = 0; i < Y; ++i) {
      y[i] = x(i);
      if (low) y[i] = maximum(y[i], low(i));
      if (high) y[i] = minimum(y[i], high(i));
    }
  }

  // To x within the limits, themselves included; to the limit beyond; as in torch to max alone where min is
  // not below it.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const Broadcast<T> x(t, d, operand_x);
    const Limit<T> low(t, d, attr, operand_min), high(t, d, attr, operand_max);
    const T* g = t["grad_y"].data();
    collect_gradient(t, d, operand_x, [&](auto i) {
      return (!low || low(i) <= x(i)) && (!high || x(i) <= high(i)) ? g[i] : T(0);
    });
    if (t.has("min")) {
      collect_gradient(t, d, operand_min,
                       [&](auto i) { return x(i) < low(i) && (!high || low(i) < high(i)) ? g[i] : T(0); });
    }
    if (t.has("max")) {
      collect_gradient(t, d, operand_max,
                       [&](auto i) { return x(i) > high(i) || (low && low(i) > high(i)) ? g[i] : T(0); });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator clip = describe<Clip>();
}

}  // namespace assay
