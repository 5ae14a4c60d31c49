#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/golden/dtype.h"

namespace assay {

/// A sum of float64 values and of products of two that is exact until it is read: neither the order nor the
/// grouping of what is added matters, nothing is lost, and round() rounds once. Radford Neal, "Fast exact
/// summation using small and large superaccumulators" (2015). NaN, infinities and signed zeros give what IEEE
/// 754 addition and multiplication give, in every order. Up to 2^60 terms.
class ExactSum {
 public:
  void add(double value);
  /// a b, exact: it never overflows or underflows, however large or small.
  void add_product(double a, double b);
  /// Every element: the same state as one by one, at about the speed of a plain sum. Any alignment.
  void add(std::span<const float>);
  void add(std::span<const double>);
  /// sum a[i] b[i]. Throws Error if the lengths differ.
  void add_products(std::span<const float> a, std::span<const float> b);
  void add_products(std::span<const double> a, std::span<const double> b);
  /// Everything that was added to `other`: shards of a sum give the bits of the whole.
  void merge(const ExactSum& other);
  /// The sum rounded to nearest even into `dtype` (integers: then clamped), as a float64. An empty sum is +0.
  double round(DType dtype = DType::float64) const;
  void clear();

 private:
  void add_bits(bool negative, std::uint64_t significand, int exponent);
  void propagate_carries();
  double round_bits(int precision, bool to_odd) const;

  // Digit i counts multiples of 2^(32 i + lowest_exponent); digits are signed and overlap, so that an add
  // touches three of them and carries are settled only now and then. The last bit of a product of float64 is
  // at least 2^-2148, its highest below 2^2048; 60 bits more for the number of terms.
  static constexpr int digit_bits = 32, lowest_exponent = -1074 - 34 * digit_bits;
  static constexpr std::size_t digits = (2048 + 60 - lowest_exponent) / digit_bits + 1;
  std::array<std::int64_t, digits> digits_{};
  std::size_t first_ = digits, last_ = 0;  // of the digits that were touched: [first_, last_]
  std::uint32_t adds_until_carry_ = max_adds;
  static constexpr std::uint32_t max_adds = 1u << 29;
  bool nan_ = false, positive_infinity_ = false, negative_infinity_ = false;
  bool any_ = false, only_negative_zeros_ = true;
};

}  // namespace assay
