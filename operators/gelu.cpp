#include "assay/golden/error.h"
#include "assay/operators/silu.h"
#include "assay/operators/unary.h"

namespace assay {
namespace {

struct Gelu {
  static constexpr std::string_view name = "gelu";
  static constexpr std::string_view math =
      "y = x Phi(x); tanh: y = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))";
  static constexpr std::string_view source = "arXiv:1606.08415";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.gelu", "torch.nn.GELU", "npu_gelu",
                                                 "GeLU", "Gelu"};
  static constexpr Attribute attributes[] = {
      {"approximate", "\"none\"", "none: erf; tanh: the approximation"}};
  static constexpr auto args = unary_args(-8, 8);
  static constexpr Example examples[] = {{"N=24"}, {"N=3x5", "approximate=\"tanh\""}};

  // sqrt(2/pi), 1/sqrt(2), 1/sqrt(2 pi) to 50 digits, and the coefficient of the approximation.
  template <class T>
  struct Constants {
    T scale = host_scalar<T>(Truth::parse("0.79788456080286535587989211986876373695171726232987"));
    T root_half = host_scalar<T>(Truth::parse("0.70710678118654752440084436210484903928483593768847"));
    T peak = host_scalar<T>(Truth::parse("0.39894228040143267793994605993438186847585863116493"));
    T cubic = constant<T>(0.044715);

    T inner(const T& x) const { return T(2) * scale * (x + cubic * x * x * x); }
    // erfc does not cancel in the negative tail, where 1 + erf does (relative error up to 4e-2 in float64).
    T normal_cdf(const T& x) const {
      const T root = root_half * x;
      return without_cancellation<T>([&] { return erfc(-root) / T(2); },
                                     [&] { return (T(1) + erf(root)) / T(2); });
    }
  };

  static bool approximate(const Attributes& a) {
    const std::string& text = a.text("approximate");
    if (text != "none" && text != "tanh")
      throw Error("gelu: approximate is '{}'; expected none or tanh", text);
    return text == "tanh";
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Constants<T> c;
    if (approximate(a)) {
      map_forward(t, d, [&](const T& x) { return x * sigmoid<T>(c.inner(x)); });
    } else {
      map_forward(t, d, [&](const T& x) { return x * c.normal_cdf(x); });
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const Constants<T> c;
    if (approximate(a)) {
      // s + x s (1 - s) u', with u = inner(x)
      map_backward(t, d, [&](const T& x) {
        const T u = c.inner(x), s = sigmoid<T>(u);
        const T slope = T(2) * c.scale * (T(1) + T(3) * c.cubic * x * x);
        const T rest = without_cancellation<T>([&] { return sigmoid<T>(-u); }, [&] { return T(1) - s; });
        return s + x * s * rest * slope;
      });
    } else {
      // Phi(x) + x phi(x)
      map_backward(t, d, [&](const T& x) { return c.normal_cdf(x) + x * c.peak * exp(x * x / T(-2)); });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator gelu = describe<Gelu>();
}

}  // namespace assay
