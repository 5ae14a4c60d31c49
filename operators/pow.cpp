#include "assay/operators/engine/binary.h"

namespace assay {
namespace {

struct Pow : Binary {
  static constexpr std::string_view name = "pow";
  static constexpr std::string_view math = "y = a^b";
  static constexpr std::string_view source = "torch.pow";
  static constexpr std::string_view aliases[] = {"torch.pow", "Pow"};
  // Which powers are finite depends on both: a^2 and 2^b are.
  static constexpr auto args =
      args_with({.name = "a", .shape = "A*", .role = Role::input, .low = .5, .high = 4},
                {.name = "b", .shape = "B*", .role = Role::input, .domain = {-126, 127}});
  static constexpr Example examples[] = {{"A=3x4,B="}, {"A=2x1x3,B=5x1"}, {"A=4,B=2x4"}};

  // a^(b-1), where a may be negative if b is an integer: then its sign goes by b, and b - 1 is exact.
  template <class T>
  static T power_below(const T& a, const T& b) {
    if (!(a < T(0))) return pow(a, b - T(1));
    if (!(floor(b) == b)) return pow(a, b);  // NaN
    const T magnitude = pow(-a, b - T(1)), half = b / T(2);
    return floor(half) == half ? -magnitude : magnitude;
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map(t, d, [](const T& a, const T& b) { return pow(a, b); });
  }

  // g b a^(b-1) and g y log a; as in torch, 0 where b is 0, and where a is 0 and y is no pole.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    map_gradients(
        t, d,
        [](const T& a, const T& b, const T& g) { return b == T(0) ? T(0) : g * (b * power_below<T>(a, b)); },
        [](const T& a, const T& b, const T& g) {
          return a == T(0) && b >= T(0) ? T(0) : g * (pow(a, b) * log(a));
        });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator pow = describe<Pow>();
}

}  // namespace assay
