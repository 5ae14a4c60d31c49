#include "assay/compare/measure/exact_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "assay/compare/measure/ordinals.h"

namespace assay {
namespace {

// n sum x^2 - (sum x)^2 = n sum (x - mean)^2, without error up to the last rounding.
double squares_about_mean(const ExactSum& sum, ExactSum square, std::int64_t n) {
  ExactSum total, rest = sum;
  for (std::int64_t bits = n; bits > 0; bits >>= 1) {
    if ((bits & 1) != 0) total.merge(square);
    square.merge(ExactSum(square));
  }
  std::vector<double> parts;  // of the sum, from large to small
  for (double part = rest.round(); part != 0 && std::isfinite(part); part = rest.round()) {
    parts.push_back(part);
    rest.add(-part);
  }
  for (const double x : parts) {
    for (const double y : parts) total.add_product(-x, y);
  }
  return std::max(0.0, total.round()) / static_cast<double>(n);
}

CompensatedSum rounded(const ExactSum& sum) {
  return {sum.round(), 0};
}

}  // namespace

void ExactSums::add(DType actual, DType reference, std::span<const std::byte> a,
                    std::span<const std::byte> r) {
  if (!is_float(actual)) return add_integers(actual, reference, a, r);
  constexpr std::size_t block = 2048;  // stays in the first cache
  const std::size_t size = size_of(actual), other_size = size_of(reference), count = a.size() / size;
  const bool narrow = actual != DType::float64 && reference != DType::float64;
  std::array<double, block> left, right, quotients;
  std::array<float, block> narrow_left, narrow_right;
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t n = std::min(block, count - at);
    const auto first = [n](auto& values) { return std::span(values.data(), n); };
    decode(actual, a.subspan(at * size, n * size), first(left));
    decode(reference, r.subspan(at * other_size, n * other_size), first(right));
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(left[i]) || !std::isfinite(right[i])) left[i] = right[i] = 0;
      quotients[i] = right[i] == 0 ? 0 : std::abs(left[i] - right[i]) / std::abs(right[i]);
      narrow_left[i] = narrow ? static_cast<float>(left[i]) : 0;
      narrow_right[i] = narrow ? static_cast<float>(right[i]) : 0;
    }
    relative_.add(std::span<const double>(first(quotients)));
    if (narrow) {
      add_values<float>(first(narrow_left), first(narrow_right));
    } else {
      add_values<double>(first(left), first(right));
    }
  }
}

template <class T>
void ExactSums::add_values(std::span<T> a, std::span<T> r) {
  using Values = std::span<const T>;
  actual_.add(Values(a));
  reference_.add(Values(r));
  actual_square_.add_products(a, a);
  reference_square_.add_products(r, r);
  for (T& x : r) x = -x;
  negative_product_.add_products(a, r);
  // |a - r| is a - r, or the negative of both; the difference itself might round.
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] >= -r[i]) continue;
    a[i] = -a[i];
    r[i] = -r[i];
  }
  abs_.add(Values(a));
  abs_.add(Values(r));
}

// Integers of 64 bits as two numbers that float64 holds.
void ExactSums::add_integers(DType actual, DType reference, std::span<const std::byte> a,
                             std::span<const std::byte> r) {
  struct Halves {
    double high, low;
    explicit Halves(Integer x)
        : high(static_cast<double>(x >> 32) * 0x1p32),
          low(static_cast<double>(static_cast<std::uint32_t>(x))) {}
    void add_to(ExactSum& sum) const {
      sum.add(high);
      sum.add(low);
    }
  };
  const auto add_product = [](ExactSum& sum, const Halves& x, const Halves& y, double sign) {
    sum.add_product(sign * x.high, y.high);
    sum.add_product(sign * x.high, y.low);
    sum.add_product(sign * x.low, y.high);
    sum.add_product(sign * x.low, y.low);
  };
  for (std::size_t i = 0; i < a.size() / size_of(actual); ++i) {
    const Integer x = integer_at(actual, a, i), y = integer_at(reference, r, i);
    const Integer error = x > y ? x - y : y - x;
    const Halves left(x), right(y);
    left.add_to(actual_);
    right.add_to(reference_);
    Halves(error).add_to(abs_);
    add_product(actual_square_, left, left, 1);
    add_product(reference_square_, right, right, 1);
    add_product(negative_product_, left, right, -1);
    if (y != 0) relative_.add(static_cast<double>(error) / std::abs(static_cast<double>(y)));
  }
}

void ExactSums::merge(const ExactSums& other) {
  abs_.merge(other.abs_);
  actual_.merge(other.actual_);
  reference_.merge(other.reference_);
  actual_square_.merge(other.actual_square_);
  reference_square_.merge(other.reference_square_);
  negative_product_.merge(other.negative_product_);
  relative_.merge(other.relative_);
}

void ExactSums::replace(Partial& p) const {
  if (p.finite == 0) return;
  ExactSum square = actual_square_, cross = negative_product_;
  square.merge(reference_square_);
  square.merge(negative_product_);
  square.merge(negative_product_);
  cross.merge(reference_square_);
  p.abs = rounded(abs_);
  p.square = rounded(square);
  p.relative = rounded(relative_);
  p.cross = {-cross.round(), 0};
  p.actual_square = rounded(actual_square_);
  p.reference_square = rounded(reference_square_);
  p.actual = {rounded(actual_), squares_about_mean(actual_, actual_square_, p.finite)};
  p.reference = {rounded(reference_), squares_about_mean(reference_, reference_square_, p.finite)};
}

}  // namespace assay
