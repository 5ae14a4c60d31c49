#pragma once

#include <array>
#include <cstdint>

#include "assay/golden/dtype.h"

namespace assay {

/// A sum of float64 values that is exact until it is read: the order of add() never matters, nothing is lost,
/// and round() rounds once. Radford Neal, "Fast exact summation using small and large superaccumulators"
/// (2015). NaN, infinities and signed zeros give what IEEE 754 addition gives, in every order.
class ExactSum {
 public:
  void add(double value);
  /// The sum rounded to nearest even into `dtype` (integers: then clamped), as a float64. An empty sum is +0.
  double round(DType dtype = DType::float64) const;
  void clear();

 private:
  void propagate_carries();
  double round_bits(int precision, bool to_odd) const;

  // Digit i counts multiples of 2^(32 i - 1074); digits are signed and overlap, so that an add touches three
  // of them and carries are settled only now and then. 2098 bits of float64, 64 for the number of terms.
  static constexpr int digit_bits = 32, lowest_exponent = -1074;
  static constexpr std::size_t digits = 68;
  std::array<std::int64_t, digits> digits_{};
  std::size_t first_ = digits, last_ = 0;  // of the digits that were touched: [first_, last_]
  std::uint32_t adds_until_carry_ = max_adds;
  static constexpr std::uint32_t max_adds = 1u << 29;
  bool nan_ = false, positive_infinity_ = false, negative_infinity_ = false;
  bool any_ = false, only_negative_zeros_ = true;
};

}  // namespace assay
