#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/golden/accumulator.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// sum_k g_k x_1 .. x_k, which takes one factor more for all terms and one term more.
template <class T>
class SumOfProducts {
 public:
  void operator*=(const T& x) { sum_ *= x; }
  void operator+=(const T& g) { sum_ += g; }
  T value() const { return sum_; }

 private:
  T sum_ = T(0);
};

// Kernels add the terms in any order, of which each has been multiplied k + 1 times: u k |term|. No partial
// sum is larger than the magnitudes M of all terms: n additions lose (n - 1) u M (Jeannerod and Rump 2013)
// and, where roundings are independent, `improbable` u sqrt(n) M but for one sum in 4e13 (Higham and Mary
// 2019, thm 2.4). Divided by 1 - 2 n u for what multiplies errors again (Higham 2002, lemma 3.1).
template <>
class SumOfProducts<Bound> {
 public:
  void operator*=(const Bound& x) {
    const double factor = std::abs(x.value);
    inherited_ = (factor + x.error) * inherited_ + x.error * magnitude_;
    products_ = factor * (products_ + magnitude_);
    magnitude_ *= factor;
    value_ *= x.value;
  }
  void operator+=(const Bound& g) {
    inherited_ += g.error;
    products_ += std::abs(g.value);
    magnitude_ += std::abs(g.value);
    value_ += g.value;
    ++terms_;
  }
  Bound value() const {
    const ErrorModel& device = ErrorScope::current();
    const double u = std::max(device.unit_roundoff,
                              device.accumulator ? device.accumulator->unit_roundoff : 0),
                 room = 1 - 2 * terms_ * u;
    const double additions =
        device.accumulator && (device.accumulator->worst_case || device.accumulator->truncates)
            ? 2 * terms_
            : std::min(terms_ - 1, improbable * std::sqrt(terms_));
    const double roundings =
        room > 0 ? u * (products_ + additions * magnitude_) / room : std::numeric_limits<double>::infinity();
    return settled(value_, inherited_ / std::max(room, 0.0) + roundings + 2 * terms_ * device.min_subnormal);
  }

 private:
  double value_ = 0, magnitude_ = 0, products_ = 0, inherited_ = 0, terms_ = 0;
};

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct CumProd {
  static constexpr std::string_view name = "cumprod";
  static constexpr std::string_view math = "y_i = x_0 .. x_i along dim";
  static constexpr std::string_view source = "Higham 2002, sec. 3.1";
  static constexpr std::string_view aliases[] = {"torch.cumprod", "CumProd", "ops.cumprod"};
  static constexpr Attribute attributes[] = {{"dim", "-1", "the dimension that is multiplied along"}};
  static constexpr Arg args[] = {
      {"x", "A*,C*,B*", Role::input},
      {"grad_y", "A*,C*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,C*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr Example examples[] = {{"A=3,C=6,B="}, {"A=2,C=5,B=3", "dim=1"}, {"A=,C=4,B=2x2", "dim=0"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x"), a.integer("dim"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        T product = T(1);
        for (std::int64_t c = 0; c < C; ++c) y(a, c, b) = product *= x(a, c, b);
      }
    }
  }

  // grad_x_i = sum_{k >= i} g_k product of x_j, j <= k, j != i, without a division, which would fail at a
  // zero: the products before i times those from i on, s_i = g_i + x_{i+1} s_{i+1}.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t a = 0; a < A; ++a) {
      for (std::int64_t b = 0; b < B; ++b) {
        SumOfProducts<T> total;
        for (std::int64_t i = C - 1; i >= 0; --i) {
          if (i + 1 < C) total *= x(a, i + 1, b);
          total += g(a, i, b);
          grad_x(a, i, b) = total.value();
        }
        T before = T(1);
        for (std::int64_t i = 0; i < C; ++i) {
          grad_x(a, i, b) *= before;
          before *= x(a, i, b);
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator cumprod = describe<CumProd>();
}

}  // namespace assay
