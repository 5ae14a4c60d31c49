#include "assay/operators/engine/products.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "assay/golden/parallel.h"

namespace assay {
namespace {

// A matrix of doubles, one of each element of another.
struct Derived {
  template <class F>
  Derived(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns, F f) : columns(columns) {
    values.resize(static_cast<std::size_t>(rows * columns));
    each_in_parallel(rows, grain_of(columns), [&](std::int64_t i) {
      double* row = values.data() + i * columns;
      for (std::int64_t j = 0; j < columns; ++j) row[j] = f(of(i, j));
    });
  }
  Strided<const double> view() const { return {values.data(), columns, 1}; }
  bool is_zero() const {
    return std::ranges::all_of(values, [](double v) { return v == 0; });
  }

  std::vector<double> values;
  std::int64_t columns;
};

double value_of(const Bound& x) {
  return x.value;
}
double square_of(const Bound& x) {
  return x.value * x.value;
}
double magnitude_of(const Bound& x) {
  return std::isfinite(x.value) ? std::abs(x.value) : 0;
}
// No error that is known: what it does to a sum is left to the whole bound.
double error_of(const Bound& x) {
  return std::isfinite(x.error) && std::isfinite(x.value) ? x.error : 0;
}
double largest_of(const Bound& x) {
  return std::isfinite(x.value) ? std::abs(x.value) + error_of(x) : 0;
}

}  // namespace

void quick_products(const OrderedMatmul<Bound>& of, std::span<const std::int64_t> terms_of_rows) {
  const std::int64_t M = of.M, N = of.N, K = of.K;
  const auto product = [&](const Derived& a, const Derived& b) {
    std::vector<double> y(static_cast<std::size_t>(M * N));
    multiply({M, N, K, a.view(), b.view(), {y.data(), N, 1}});
    return y;
  };
  const auto of_a = [&](auto f) { return Derived(of.a, M, K, f); };
  const auto of_b = [&](auto f) { return Derived(of.b, K, N, f); };
  const std::vector<double> values = product(of_a(value_of), of_b(value_of)),
                            squares = product(of_a(square_of), of_b(square_of));
  // |a| eb + ea (|b| + eb)
  std::vector<double> inherited(values.size(), 0);
  const auto inherit = [&](const Derived& a, const Derived& b) {
    if (a.is_zero() || b.is_zero()) return;
    const std::vector<double> more = product(a, b);
    for (std::size_t i = 0; i < more.size(); ++i) inherited[i] += more[i];
  };
  inherit(of_a(magnitude_of), of_b(error_of));
  inherit(of_a(error_of), of_b(largest_of));
  const double u = ErrorScope::current().unit_roundoff;
  constexpr double computed = 1 - 0x1p-20;  // the sums themselves are float64's: K 2^-53 of them
  each_in_parallel(M, grain_of(4 * N), [&](std::int64_t m) {
    const std::int64_t terms = (terms_of_rows.empty() ? K : terms_of_rows[static_cast<std::size_t>(m)]) +
                               (of.last.x == nullptr ? 0 : 1);
    for (std::int64_t n = 0; n < N; ++n) {
      const auto i = static_cast<std::size_t>(m * N + n);
      const Bound last = of.last.x == nullptr ? Bound(0) : of.last(m, n);
      const double value = values[i] + last.value;
      const double square = squares[i] + last.value * last.value;
      // Each product is rounded, too.
      const double products =
          std::isfinite(value) ? u * std::max(std::abs(values[i]), std::sqrt(squares[i])) : 0;
      const double loss = products + least_loss(terms, value, square, u);
      of.y(m, n) = settled(value, computed * (inherited[i] + last.error + loss));
    }
  });
}

}  // namespace assay
