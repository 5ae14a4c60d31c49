#include "assay/operators/engine/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "assay/golden/parallel.h"

namespace assay {
namespace {

// A matrix of numbers, one of each element of another.
template <class T>
struct Derived {
  template <class F>
  Derived(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns, F f)
      : values(static_cast<std::size_t>(rows * columns)),
        // as it lies in memory
        view(of.row < of.column ? Strided<const T>{values.data(), 1, rows}
                                : Strided<const T>{values.data(), columns, 1}) {
    const bool by_columns = view.row == 1;
    const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
    each_in_parallel(outer, grain_of(inner), [&](std::int64_t i) {
      T* to = values.data() + i * inner;
      for (std::int64_t j = 0; j < inner; ++j) to[j] = by_columns ? f(of(j, i)) : f(of(i, j));
    });
  }
  std::vector<T> values;
  Strided<const T> view;
};

Strided<const double> values_of(const Strided<const Bound>& of) {
  static_assert(sizeof(Bound) == 2 * sizeof(double));
  return {of.x == nullptr ? nullptr : &of.x->value, 2 * of.row, 2 * of.column};  // null: no elements
}

constexpr auto magnitude_of = [](const Bound& x) { return std::isfinite(x.value) ? std::abs(x.value) : 0; };
// No error that is known: what it does to a sum is left to the whole bound.
constexpr auto error_of = [](const Bound& x) {
  return std::isfinite(x.error) && std::isfinite(x.value) ? x.error : 0;
};
constexpr auto largest_of = [](const Bound& x) { return magnitude_of(x) + error_of(x); };

// f of all elements, from each row's or column's as they lie in memory.
template <class F>
double most_of(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns, F f) {
  const bool by_columns = of.row < of.column;
  const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
  std::vector<double> most(static_cast<std::size_t>(outer), 0);
  each_in_parallel(outer, grain_of(inner), [&](std::int64_t i) {
    double largest = 0;
    for (std::int64_t j = 0; j < inner; ++j) largest = std::max(largest, f(by_columns ? of(j, i) : of(i, j)));
    most[static_cast<std::size_t>(i)] = largest;
  });
  return outer == 0 ? 0 : std::ranges::max(most);
}

// Sums of the products' squares, no larger than they are: in float32, of factors of 1 at most, which are cut
// to half of float32's 24 bits. Products of two are exact then.
class Squares {
 public:
  explicit Squares(const OrderedMatmul<Bound>& of) : sums_(static_cast<std::size_t>(of.M * of.N)) {
    const int a = exponent_of(of.a, of.M, of.K), b = exponent_of(of.b, of.K, of.N);
    const Derived<float> of_a(of.a, of.M, of.K, Square(a)), of_b(of.b, of.K, of.N, Square(b));
    multiply({of.M, of.N, of.K, of_a.view, of_b.view, {sums_.data(), of.N, 1}, {}, true});
    // Two factors of a product are rounded and cut, and each sum is rounded.
    constexpr double u = 0x1p-24, of_factors = 2 * (0x1p-11 + u);
    unit_ = std::ldexp(std::max(0.0, 1 - of_factors - static_cast<double>(of.K) * u), 2 * (a + b));
  }
  double operator[](std::size_t i) const { return unit_ * static_cast<double>(sums_[i]); }

 private:
  struct Square {
    explicit Square(int exponent) : scale(std::ldexp(1, -exponent)) {}
    float operator()(const Bound& x) const {
      constexpr float least = 0x1p-62F;  // of less the products may be subnormal
      const double v = scale * magnitude_of(x);
      const auto square = static_cast<float>(v * v);
      return square < least ? 0 : std::bit_cast<float>(std::bit_cast<std::uint32_t>(square) & ~0xFFFU);
    }
    double scale;
  };
  static int exponent_of(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns) {
    const double most = most_of(of, rows, columns, magnitude_of);
    return most > 0 ? std::max(std::ilogb(most) + 1, -1000) : 0;  // so that 2^-exponent is a number
  }

  std::vector<float> sums_;
  double unit_;
};

}  // namespace

void quick_products(const OrderedMatmul<Bound>& of, std::span<const std::int64_t> terms_of_rows) {
  const std::int64_t M = of.M, N = of.N, K = of.K;
  std::vector<double> values(static_cast<std::size_t>(M * N)), inherited;
  multiply({M, N, K, values_of(of.a), values_of(of.b), {values.data(), N, 1}});
  const Squares squares(of);
  // |a| eb + ea (|b| + eb)
  const auto inherit = [&](auto of_a, auto of_b) {
    const Derived<double> a(of.a, M, K, of_a), b(of.b, K, N, of_b);
    std::vector<double> more(values.size());
    multiply({M, N, K, a.view, b.view, {more.data(), N, 1}});
    inherited.resize(values.size(), 0);
    for (std::size_t i = 0; i < more.size(); ++i) inherited[i] += more[i];
  };
  if (most_of(of.b, K, N, error_of) > 0) inherit(magnitude_of, error_of);
  if (most_of(of.a, M, K, error_of) > 0) inherit(error_of, largest_of);
  const double u = ErrorScope::current().unit_roundoff;
  constexpr double computed = 1 - 0x1p-20;  // the sums themselves are float64's: K 2^-53 of them
  each_in_parallel(M, grain_of(4 * N), [&](std::int64_t m) {
    const std::int64_t terms = (terms_of_rows.empty() ? K : terms_of_rows[static_cast<std::size_t>(m)]) +
                               (of.last.x == nullptr ? 0 : 1);
    for (std::int64_t n = 0; n < N; ++n) {
      const auto i = static_cast<std::size_t>(m * N + n);
      const Bound last = of.last.x == nullptr ? Bound(0) : of.last(m, n);
      const double value = values[i] + last.value;
      const double square = squares[i];
      // Each product is rounded, too.
      const double products = std::isfinite(value) ? u * std::max(std::abs(values[i]), std::sqrt(square)) : 0;
      const double loss = products + least_loss(terms, value, square + last.value * last.value, u);
      const double from_inputs = inherited.empty() ? 0 : inherited[i];
      of.y(m, n) = settled(value, computed * (from_inputs + last.error + loss));
    }
  });
}

}  // namespace assay
