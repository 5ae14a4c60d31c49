#include "assay/golden/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace assay {

void ExactSum::add(double value) {
  any_ = true;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  std::uint64_t significand = bits & ((std::uint64_t{1} << 52) - 1);
  only_negative_zeros_ = only_negative_zeros_ && bits == std::uint64_t{1} << 63;
  if (exponent == 0x7ff) {
    if (significand != 0)
      nan_ = true;
    else
      (value > 0 ? positive_infinity_ : negative_infinity_) = true;
    return;
  }
  if (exponent != 0) significand |= std::uint64_t{1} << 52;
  if (significand == 0) return;
  // Subnormals share the exponent of the smallest normal number, whose last bit is the last bit of digit 0.
  const auto position = static_cast<unsigned>(std::max(exponent, 1) - 1);
  const std::size_t i = position / digit_bits;
  const auto shifted = static_cast<unsigned __int128>(significand) << (position % digit_bits);
  const std::int64_t sign = value < 0 ? -1 : 1;
  digits_[i] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted));
  digits_[i + 1] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 32));
  digits_[i + 2] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 64));
  first_ = std::min(first_, i);
  last_ = std::max(last_, i + 2);
  if (--adds_until_carry_ == 0) propagate_carries();
}

// Afterwards every digit but the highest is in [0, 2^32), and the highest carries the sign.
void ExactSum::propagate_carries() {
  adds_until_carry_ = max_adds;
  for (std::size_t i = first_; i + 1 < digits && i <= last_; ++i) {
    const std::int64_t carry = digits_[i] >> digit_bits;   // floor
    if (i == last_ && (carry == 0 || carry == -1)) break;  // a sign alone needs no further digit
    digits_[i] -= carry * (std::int64_t{1} << digit_bits);
    digits_[i + 1] += carry;
    last_ = std::max(last_, i + 1);
  }
}

double ExactSum::round(DType dtype) const {
  const bool both = positive_infinity_ && negative_infinity_;
  if (nan_ || both) return round_to(dtype, std::numeric_limits<double>::quiet_NaN());
  if (positive_infinity_) return round_to(dtype, std::numeric_limits<double>::infinity());
  if (negative_infinity_) return round_to(dtype, -std::numeric_limits<double>::infinity());
  if (any_ && only_negative_zeros_) return round_to(dtype, -0.0);
  // A first rounding to odd keeps enough for a second one to be right if it drops at least two bits.
  // Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums".
  return dtype == DType::float64 ? round_bits(53, false) : round_to(dtype, round_bits(53, true));
}

double ExactSum::round_bits(int precision, bool to_odd) const {
  if (first_ >= digits) return 0;
  ExactSum sum = *this;
  sum.propagate_carries();
  std::size_t top = sum.last_;
  while (top > first_ && sum.digits_[top] == 0) --top;
  const bool negative = sum.digits_[top] < 0;
  if (negative) {
    for (std::size_t i = first_; i <= sum.last_; ++i) sum.digits_[i] = -sum.digits_[i];
    sum.propagate_carries();
    top = sum.last_;
    while (top > first_ && sum.digits_[top] == 0) --top;
  }
  if (sum.digits_[top] == 0) return 0;
  // The highest digits as one number, and whether anything is below them.
  unsigned __int128 head = 0;
  const std::size_t bottom = top >= first_ + 2 ? top - 2 : first_;
  for (std::size_t i = top + 1; i-- > bottom;)
    head = head << digit_bits | static_cast<std::uint64_t>(sum.digits_[i]);
  bool sticky = false;
  for (std::size_t i = first_; i < bottom; ++i) sticky = sticky || sum.digits_[i] != 0;
  const auto high = static_cast<std::uint64_t>(head >> 64);
  const int width =
      high != 0 ? 128 - std::countl_zero(high) : 64 - std::countl_zero(static_cast<std::uint64_t>(head));
  int exponent = lowest_exponent + static_cast<int>(bottom) * digit_bits;
  // Nothing is below 2^-1074, so a subnormal result is exact by itself.
  const int drop = std::max(width - precision, 0);
  auto kept = static_cast<std::uint64_t>(head >> drop);
  const unsigned __int128 rest = head - (static_cast<unsigned __int128>(kept) << drop);
  if (rest != 0 || sticky) {
    if (to_odd) {
      kept |= 1;
    } else {
      const unsigned __int128 half = drop == 0 ? 0 : static_cast<unsigned __int128>(1) << (drop - 1);
      if (drop != 0 && (rest > half || (rest == half && (sticky || (kept & 1) != 0)))) ++kept;
    }
  }
  exponent += drop;
  const double magnitude = std::ldexp(static_cast<double>(kept), exponent);
  return negative ? -magnitude : magnitude;
}

void ExactSum::clear() {
  for (std::size_t i = first_; i <= last_ && i < digits; ++i) digits_[i] = 0;
  first_ = digits;
  last_ = 0;
  adds_until_carry_ = max_adds;
  nan_ = positive_infinity_ = negative_infinity_ = any_ = false;
  only_negative_zeros_ = true;
}

}  // namespace assay
