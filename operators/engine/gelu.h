#pragma once

#include "assay/golden/error.h"
#include "assay/operators/engine/silu.h"

/// x Phi(x), exact or by an approximation of Phi (arXiv:1606.08415, section 2), and its slope.
namespace assay {

template <class T>
class GeluFunction {
 public:
  /// @param approximate  "none", "tanh" or "sigmoid"
  /// @throws Error       for anything else, that names `op`
  GeluFunction(std::string_view op, const std::string& approximate)
      : is_exact_(approximate == "none"), is_tanh_(approximate == "tanh") {
    if (!is_exact_ && !is_tanh_ && approximate != "sigmoid")
      throw Error("{}: approximate is '{}'; expected none, tanh or sigmoid", op, approximate);
  }

  T operator()(const T& x) const { return x * (is_exact_ ? normal_cdf(x) : approximate_cdf(inner(x))); }

  T slope(const T& x) const {
    if (is_exact_) return normal_cdf(x) + x * peak_ * exp(x * x / T(-2));  // Phi(x) + x phi(x)
    // s + x s (1 - s) u', with s = sigmoid(u), u = inner(x)
    const T u = inner(x), s = approximate_cdf(u);
    const T inner_slope = is_tanh_ ? T(2) * scale_ * (T(1) + T(3) * cubic_ * x * x) : logistic_;
    const T rest = without_cancellation<T>([&] { return sigmoid<T>(-u); }, [&] { return T(1) - s; });
    return s + x * s * rest * inner_slope;
  }

 private:
  // Activations that are written out step by step keep each in the dtype of x.
  T inner(const T& x) const {
    if (!is_tanh_) return stored(logistic_ * x);
    return T(2) * stored(scale_ * stored(x + stored(cubic_ * stored(x * x * x))));
  }
  // sigmoid(u) = (1 + tanh(u/2)) / 2, which kernels compute and which cancels in the negative tail.
  T approximate_cdf(const T& u) const {
    if (!is_tanh_) return stored(sigmoid<T>(u));
    return without_cancellation<T>([&] { return sigmoid<T>(u); },
                                   [&] { return stored(T(1) + stored(tanh(u / T(2)))) / T(2); });
  }
  // erfc does not cancel there, where 1 + erf does (relative error up to 4e-2 in float64).
  T normal_cdf(const T& x) const {
    const T root = root_half_ * x;
    return without_cancellation<T>([&] { return erfc(-root) / T(2); },
                                   [&] { return (T(1) + erf(root)) / T(2); });
  }

  // sqrt(2/pi), 1/sqrt(2), 1/sqrt(2 pi) to 50 digits, and the coefficients of the approximations.
  T scale_ = host_scalar<T>(Truth::parse("0.79788456080286535587989211986876373695171726232987"));
  T root_half_ = host_scalar<T>(Truth::parse("0.70710678118654752440084436210484903928483593768847"));
  T peak_ = host_scalar<T>(Truth::parse("0.39894228040143267793994605993438186847585863116493"));
  T cubic_ = constant<T>(0.044715);
  T logistic_ = constant<T>(1.702);
  bool is_exact_, is_tanh_;
};

}  // namespace assay
