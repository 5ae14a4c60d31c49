#include "assay/golden/error.h"
#include "assay/operators/engine/binary.h"

namespace assay {
namespace {

struct Div : Binary {
  static constexpr std::string_view name = "div";
  static constexpr std::string_view math = "y = a / b; floor, trunc: rounded to an integer";
  static constexpr std::string_view source = "torch.div";
  static constexpr std::string_view aliases[] = {"torch.div", "torch.divide", "torch.true_divide", "Div",
                                                 "RealDiv"};
  static constexpr Attribute attributes[] = {
      {"rounding_mode", "null", "floor: down; trunc: towards 0; null: not to an integer"}};
  // The quotient of a large and a small number is finite.
  static constexpr auto args = args_with(
      {"a", "A*", Role::input},
      {.name = "b", .shape = "B*", .role = Role::input, .low = .5, .high = 2, .domain = {.least = 0x1p-63}});
  static constexpr Example examples[] = {{"A=3x4,B="},
                                         {"A=2x1x3,B=5x1"},
                                         {"A=5,B=3x1", "rounding_mode=\"floor\""},
                                         {"A=6,B=1", "rounding_mode=\"trunc\""}};
  static constexpr ExactFill exact_fill = ExactFill::powers_of_two;
  static constexpr Shares takes_shares = Shares::of_one;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    Binary::bind(d, inputs, a);
    if (!a.has("rounding_mode")) return;
    const std::string& mode = a.text("rounding_mode");
    if (mode != "floor" && mode != "trunc")
      throw Error("div: rounding_mode is \"{}\"; expected null, floor or trunc", mode);
  }

  // The largest integer up to the quotient, which a rounded quotient may exceed: 1 / 0.1 in float64. A device
  // may be one off there, but not where the quotient is an integer and IEEE 754 wants it exact.
  template <class T>
  static T floor_quotient(const T& a, const T& b) {
    if constexpr (std::is_same_v<T, Bound>) {
      const double q = floor_quotient(a.value, b.value);
      const bool exact = a.error == 0 && b.error == 0 && std::fma(-q, b.value, a.value) == 0;
      return exact ? Bound(q) : floor(a / b);
    } else {
      T q = floor(a / b);
      if constexpr (std::is_floating_point_v<T>) {
        const T rest = std::fma(-q, b, a);
        if (b > 0 ? rest < 0 : rest > 0) q -= 1;
      }
      return q;
    }
  }

  template <class T>
  static T trunc_quotient(const T& a, const T& b) {
    const T q = floor_quotient<T>(abs(a), abs(b));
    return (a < T(0)) == (b < T(0)) ? q : -q;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    if (!attr.has("rounding_mode")) {
      map(t, d, [](const T& a, const T& b) { return a / b; });
    } else if (attr.text("rounding_mode") == "floor") {
      map(t, d, [](const T& a, const T& b) { return floor_quotient<T>(a, b); });
    } else {
      map(t, d, [](const T& a, const T& b) { return trunc_quotient<T>(a, b); });
    }
  }

  // A step function has the gradient 0, which the gradients are made with.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    if (attr.has("rounding_mode")) return;
    map_gradients(
        t, d, [](const T&, const T& b, const T& g) { return g / b; },
        [](const T& a, const T& b, const T& g) { return -g * (a / b / b); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator div = describe<Div>();
}

}  // namespace assay
