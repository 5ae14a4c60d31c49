#include "assay/operators/engine/products.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "assay/golden/bound_kernels.h"
#include "assay/golden/parallel.h"

namespace assay {
namespace {

// A matrix of numbers, one of each element of another, made line by line.
template <class T>
struct Derived {
  /// @param f          of an element
  /// @param make_line  of a line whose elements lie side by side; false: it is not for this one
  template <class F, class G>
  Derived(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns, F f, G make_line)
      : values(static_cast<std::size_t>(rows * columns)),
        // as it lies in memory
        view(of.row < of.column ? Strided<const T>{values.data(), 1, rows}
                                : Strided<const T>{values.data(), columns, 1}) {
    const bool by_columns = view.row == 1;
    const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
    each_in_parallel(outer, grain_of(inner), [&](std::int64_t i) {
      T* to = values.data() + i * inner;
      const bool is_dense = inner > 0 && (by_columns ? of.row : of.column) == 1;
      if (is_dense &&
          make_line(std::span(by_columns ? &of(0, i) : &of(i, 0), static_cast<std::size_t>(inner)), to))
        return;
      for (std::int64_t j = 0; j < inner; ++j) to[j] = by_columns ? f(of(j, i)) : f(of(i, j));
    });
  }
  std::vector<T> values;
  Strided<const T> view;
};

constexpr auto magnitude_of = [](const Bound& x) { return std::isfinite(x.value) ? std::abs(x.value) : 0; };
// No error that is known: what it does to a sum is left to the whole bound.
constexpr auto error_of = [](const Bound& x) {
  return std::isfinite(x.error) && std::isfinite(x.value) ? x.error : 0;
};
constexpr auto no_line = [](std::span<const Bound>, auto*) { return false; };

// Products of numbers that are float32 take half the time (ordered_matmul.h). Where results are stored in a
// narrow format, what is so near to one that its own error hides the difference becomes it: what is within
// the error that is left of that number is within the error of the other.
constexpr double hidden_share = 1. / 64;
bool hides_rounding(const Bound& x) {
  if (ErrorScope::current().stored_roundoff == 0) return false;
  const double difference = std::abs(x.value - static_cast<double>(static_cast<float>(x.value)));
  return difference > 0 && difference <= hidden_share * error_of(x);
}
constexpr auto factor_of = [](const Bound& x) {
  return hides_rounding(x) ? static_cast<double>(static_cast<float>(x.value)) : x.value;
};
constexpr auto error_of_factor = [](const Bound& x) {
  return hides_rounding(x) ? (1 - hidden_share) * error_of(x) : error_of(x);
};

// Elements of a factor that lie together.
struct Region {
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  bool is_empty() const { return rows == 0 || columns == 0; }
};
Strided<const Bound> region_of(const Strided<const Bound>& of, const Region& p) {
  return {of.x + p.row * of.row + p.column * of.column, of.row, of.column};
}

// What is known of a factor before it is multiplied.
struct Known {
  Known(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns) {
    const bool by_columns = of.row < of.column;
    const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
    std::vector<Known> lines(static_cast<std::size_t>(outer));
    each_in_parallel(outer, grain_of(inner), [&](std::int64_t i) {
      Known& line = lines[static_cast<std::size_t>(i)];
      const auto at = [&](std::int64_t j) -> const Bound& { return by_columns ? of(j, i) : of(i, j); };
      const bool is_dense = inner > 0 && (by_columns ? of.row : of.column) == 1;
      const auto take = [&](std::span<const Bound> some) {
        const LargestOfLine of_some = largest_of(some);
        line.most = std::max(line.most, of_some.value);
        line.most_error = std::max(line.most_error, of_some.error);
        line.is_finite = line.is_finite && of_some.is_finite;
      };
      if (is_dense)
        take(std::span(&at(0), static_cast<std::size_t>(inner)));
      else
        for (std::int64_t j = 0; j < inner; ++j) take(std::span(&at(j), 1));
      std::int64_t first = inner, end = 0;
      if (line.most_error > 0) {
        for (first = 0; error_of(at(first)) == 0;) ++first;
        for (end = inner; error_of(at(end - 1)) == 0;) --end;
      }
      for (std::int64_t j = first; j < end && !line.hides; ++j) line.hides = hides_rounding(at(j));
      if (end > 0) line.with_errors = {i, 1, first, end - first};
    });
    std::int64_t first = outer, end = 0, first_inner = inner, end_inner = 0;
    for (const Known& line : lines) {
      most = std::max(most, line.most);
      most_error = std::max(most_error, line.most_error);
      hides = hides || line.hides;
      is_finite = is_finite && line.is_finite;
      const Region& p = line.with_errors;
      if (p.is_empty()) continue;
      first = std::min(first, p.row);
      end = p.row + 1;
      first_inner = std::min(first_inner, p.column);
      end_inner = std::max(end_inner, p.column + p.columns);
    }
    if (end == 0) return;
    with_errors = {first, end - first, first_inner, end_inner - first_inner};
    if (by_columns) with_errors = {first_inner, end_inner - first_inner, first, end - first};
  }
  Known() = default;

  double most = 0, most_error = 0;
  Region with_errors = {};
  bool hides = false, is_finite = true;
};

// A factor in float64, as products take it.
class Factor {
 public:
  Factor(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns, const Known& known) {
    static_assert(sizeof(Bound) == 2 * sizeof(double));
    view_ = {of.x == nullptr ? nullptr : &of.x->value, 2 * of.row, 2 * of.column};  // null: no elements
    if (known.hides) view_ = made_.emplace(of, rows, columns, factor_of, no_line).view;
  }
  const Strided<const double>& view() const { return view_; }

 private:
  std::optional<Derived<double>> made_;
  Strided<const double> view_;
};

int exponent_of(double most) {
  return most > 0 ? std::max(std::ilogb(most) + 1, -1000) : 0;  // so that 2^-exponent is a number
}

// One of the factors of such products.
struct Shares {
  Shares(const Known& known, Share share, double most)
      : is_finite(known.is_finite),
        share(share),
        exponent(exponent_of(most)),
        unit(std::ldexp(1, -exponent)),
        hidden(ErrorScope::current().stored_roundoff == 0 ? 0 : hidden_share) {}
  double operator()(const Bound& x) const {
    const double magnitude = unit * magnitude_of(x);
    switch (share) {
      case Share::magnitude:
        return magnitude;
      case Share::square:
        return magnitude * magnitude;
      case Share::error:
        return unit * error_of_factor(x);
      case Share::value_and_error:
        return unit * (magnitude_of(x) + error_of(x));
    }
    return 0;
  }
  int power() const { return share == Share::square ? 2 * exponent : exponent; }
  bool is_finite;
  Share share;
  int exponent;
  double unit, hidden;
};

// Sums of products of numbers that are not negative, no larger than they are: in float32, of factors of 1 at
// most, which are cut to half of float32's 24 bits. Products of two are exact then.
class CutProducts {
 public:
  CutProducts(const OrderedMatmul<Bound>& of, const Shares& a, const Shares& b)
      : sums_(static_cast<std::size_t>(of.M * of.N)) {
    const Derived<float> cut_a = cut(of.a, of.M, of.K, a), cut_b = cut(of.b, of.K, of.N, b);
    multiply({of.M, of.N, of.K, cut_a.view, cut_b.view, {sums_.data(), of.N, 1}, {}, true});
    // Two factors of a product are rounded and cut, and each sum is rounded.
    constexpr double u = 0x1p-24, of_factors = 2 * (0x1p-11 + u);
    unit_ = std::ldexp(std::max(0.0, 1 - of_factors - static_cast<double>(of.K) * u), a.power() + b.power());
  }
  double operator[](std::size_t i) const { return unit_ * static_cast<double>(sums_[i]); }

 private:
  static Derived<float> cut(const Strided<const Bound>& of, std::int64_t rows, std::int64_t columns,
                            const Shares& shares) {
    const auto one = [&](const Bound& x) {
      constexpr float least = 0x1p-62F;  // of less the products may be subnormal
      const auto v = static_cast<float>(shares(x));
      return v < least ? 0 : std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & ~0xFFFU);
    };
    return {of, rows, columns, one, [&](std::span<const Bound> line, float* to) {
              if (!shares.is_finite) return false;
              cut_line(line, shares.share, shares.unit, shares.hidden, to);
              return true;
            }};
  }
  std::vector<float> sums_;
  double unit_;
};

constexpr std::int64_t step_of_terms = 4;

// Whether every fourth element of each line has a good part of its squares: not where few are large.
bool is_even(const Strided<const Bound>& of, std::int64_t lines, std::int64_t K) {
  constexpr double good_part = 1. / (2 * step_of_terms);
  std::vector<double> all(static_cast<std::size_t>(lines), 0), some = all;
  const bool by_columns = of.row < of.column;
  for (std::int64_t i = 0; i < (by_columns ? K : lines); ++i) {
    for (std::int64_t j = 0; j < (by_columns ? lines : K); ++j) {
      const std::int64_t line = by_columns ? j : i, k = by_columns ? i : j;
      const double v = magnitude_of(of(line, k));
      all[static_cast<std::size_t>(line)] += v * v;
      if (k % step_of_terms == 0) some[static_cast<std::size_t>(line)] += v * v;
    }
  }
  return std::ranges::equal(some, all, [](double part, double whole) { return part >= good_part * whole; });
}

// Sums of the products' squares, no larger than they are. Where sums are stored in a narrow format, what
// they lose before is next to nothing beside that: of some of their terms it is enough.
class Squares {
 public:
  Squares(const OrderedMatmul<Bound>& of, const Known& a, const Known& b)
      : sums_(some_terms(of), {a, Share::square, a.most}, {b, Share::square, b.most}) {}
  double operator[](std::size_t i) const { return sums_[i]; }

 private:
  static OrderedMatmul<Bound> some_terms(OrderedMatmul<Bound> of) {
    constexpr std::int64_t enough = 128;
    if (ErrorScope::current().stored_roundoff == 0 || of.K < enough || !is_even(of.a, of.M, of.K) ||
        !is_even(of.b.transposed(), of.N, of.K))
      return of;
    of.K = (of.K + step_of_terms - 1) / step_of_terms;
    of.a.column *= step_of_terms;
    of.b.row *= step_of_terms;
    return of;
  }

  CutProducts sums_;
};

// Adds what the errors of the factors do to each sum, |a| eb + ea (|b| + eb), to dense rows of N.
void add_inherited(const OrderedMatmul<Bound>& of, const Known& a, const Known& b, double* sums) {
  const auto add = [&](const OrderedMatmul<Bound>& some, std::int64_t m, std::int64_t n,
                       const CutProducts& products) {
    each_in_parallel(some.M, grain_of(some.N), [&](std::int64_t i) {
      double* to = sums + (m + i) * of.N + n;
      for (std::int64_t j = 0; j < some.N; ++j) to[j] += products[static_cast<std::size_t>(i * some.N + j)];
    });
  };
  if (const Region& r = b.with_errors; !r.is_empty()) {
    OrderedMatmul<Bound> some = of;
    some.K = r.rows;
    some.N = r.columns;
    some.a = region_of(of.a, {.column = r.row});
    some.b = region_of(of.b, r);
    add(some, 0, r.column, CutProducts(some, {a, Share::magnitude, a.most}, {b, Share::error, b.most_error}));
  }
  if (const Region& r = a.with_errors; !r.is_empty()) {
    OrderedMatmul<Bound> some = of;
    some.M = r.rows;
    some.K = r.columns;
    some.a = region_of(of.a, r);
    some.b = region_of(of.b, {.row = r.column});
    add(some, r.row, 0,
        CutProducts(some, {a, Share::error, a.most_error},
                    {b, Share::value_and_error, b.most + b.most_error}));
  }
}

constexpr double told = 1 - 0x1p-20;  // the sums themselves are float64's: K 2^-53 of them

}  // namespace

QuickSums::QuickSums(std::int64_t M, std::int64_t N)
    : N_(N),
      values_(static_cast<std::size_t>(M * N), 0),
      squares_(values_.size(), 0),
      inherited_(values_.size(), 0) {}

void QuickSums::add(std::int64_t first, const OrderedMatmul<Bound>& of) {
  const std::int64_t M = of.M, N = of.N, K = of.K, at = first * N;
  const Known a(of.a, M, K), b(of.b, K, N);
  {
    const Factor of_a(of.a, M, K, a), of_b(of.b, K, N, b);
    std::vector<double> values(static_cast<std::size_t>(M * N));
    multiply({M, N, K, of_a.view(), of_b.view(), {values.data(), N, 1}});
    const Squares squares(of, a, b);
    each_in_parallel(M, grain_of(2 * N), [&](std::int64_t m) {
      for (std::int64_t i = m * N; i < (m + 1) * N; ++i) {
        const auto from = static_cast<std::size_t>(i), to = static_cast<std::size_t>(at + i);
        values_[to] += values[from];
        squares_[to] += squares[from];
      }
    });
  }
  add_inherited(of, a, b, inherited_.data() + at);
}

Bound QuickSums::sum(std::int64_t m, std::int64_t n, std::int64_t terms, const Bound& last) const {
  const auto i = static_cast<std::size_t>(m * N_ + n);
  const double u = ErrorScope::current().unit_roundoff, value = values_[i] + last.value, square = squares_[i];
  // Each product is rounded, too.
  const double products = std::isfinite(value) ? u * std::max(std::abs(values_[i]), std::sqrt(square)) : 0;
  const double loss = products + least_loss(terms, value, square + last.value * last.value, u);
  return settled(value, told * (inherited_[i] + last.error + loss));
}

void QuickSums::row(std::int64_t m, std::int64_t terms, Bound* to) const {
  if (N_ == 0) return;
  const auto at = static_cast<std::size_t>(m * N_);
  settle_line({&values_[at], &squares_[at], &inherited_[at], static_cast<std::size_t>(N_), terms, told}, to);
}

void quick_products(const OrderedMatmul<Bound>& of, std::span<const std::int64_t> terms_of_rows) {
  constexpr std::int64_t together = 1 << 23;  // sums: what is kept of each takes memory
  const std::int64_t rows = std::max<std::int64_t>(1, together / std::max<std::int64_t>(1, of.N));
  const bool has_last = of.last.x != nullptr;
  for (std::int64_t first = 0; first < of.M; first += rows) {
    OrderedMatmul<Bound> some = of;
    some.M = std::min(rows, of.M - first);
    some.a = region_of(of.a, {.row = first});
    QuickSums sums(some.M, some.N);
    sums.add(0, some);
    each_in_parallel(some.M, grain_of(4 * of.N), [&](std::int64_t i) {
      const std::int64_t m = first + i;
      const std::int64_t terms =
          (terms_of_rows.empty() ? of.K : terms_of_rows[static_cast<std::size_t>(m)]) + (has_last ? 1 : 0);
      if (!has_last && of.y.column == 1 && of.N > 0) return sums.row(i, terms, &of.y(m, 0));
      for (std::int64_t n = 0; n < of.N; ++n)
        of.y(m, n) = sums.sum(i, n, terms, has_last ? of.last(m, n) : Bound(0));
    });
  }
}

}  // namespace assay
