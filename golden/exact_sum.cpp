#include "assay/golden/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace assay {

namespace {

constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;

// |value| = significand 2^exponent of a finite value, the last bit where float64 has it. From the bits: a
// process that flushes subnormals compares them equal to zero.
struct Parts {
  bool negative, finite;
  std::uint64_t significand;
  int exponent;
  explicit Parts(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const int biased = static_cast<int>(bits >> 52 & 0x7ff);
    negative = (bits & sign_bit) != 0;
    finite = biased != 0x7ff;
    significand = bits & ((std::uint64_t{1} << 52) - 1);
    if (biased != 0) significand |= std::uint64_t{1} << 52;
    exponent = std::max(biased, 1) - 1075;  // subnormals share the exponent of the smallest normal number
  }
};

}  // namespace

void ExactSum::add(double value) {
  any_ = true;
  only_negative_zeros_ = only_negative_zeros_ && std::bit_cast<std::uint64_t>(value) == sign_bit;
  const Parts x(value);
  if (!x.finite) {
    (std::isnan(value) ? nan_ : x.negative ? negative_infinity_ : positive_infinity_) = true;
    return;
  }
  add_bits(x.negative, x.significand, x.exponent);
}

void ExactSum::add_product(double a, double b) {
  const Parts x(a), y(b);
  if (!x.finite || !y.finite || x.significand == 0 || y.significand == 0) return add(a * b);
  any_ = true;
  only_negative_zeros_ = false;
  const auto product = static_cast<unsigned __int128>(x.significand) * y.significand;
  const bool negative = x.negative != y.negative;
  add_bits(negative, static_cast<std::uint64_t>(product), x.exponent + y.exponent);
  add_bits(negative, static_cast<std::uint64_t>(product >> 64), x.exponent + y.exponent + 64);
}

void ExactSum::add_bits(bool negative, std::uint64_t significand, int exponent) {
  if (significand == 0) return;
  const auto position = static_cast<unsigned>(exponent - lowest_exponent);
  const std::size_t i = position / digit_bits;
  const auto shifted = static_cast<unsigned __int128>(significand) << (position % digit_bits);
  const std::int64_t sign = negative ? -1 : 1;
  digits_[i] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted));
  digits_[i + 1] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 32));
  digits_[i + 2] += sign * static_cast<std::int64_t>(static_cast<std::uint32_t>(shifted >> 64));
  first_ = std::min(first_, i);
  last_ = std::max(last_, i + 2);
  if (--adds_until_carry_ == 0) propagate_carries();
}

void ExactSum::merge(const ExactSum& other) {
  nan_ = nan_ || other.nan_;
  positive_infinity_ = positive_infinity_ || other.positive_infinity_;
  negative_infinity_ = negative_infinity_ || other.negative_infinity_;
  any_ = any_ || other.any_;
  only_negative_zeros_ = only_negative_zeros_ && other.only_negative_zeros_;
  if (other.first_ >= digits) return;
  ExactSum addend = other;
  addend.propagate_carries();
  propagate_carries();
  for (std::size_t i = addend.first_; i <= addend.last_; ++i) digits_[i] += addend.digits_[i];
  first_ = std::min(first_, addend.first_);
  last_ = std::max(last_, addend.last_);
  propagate_carries();
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
  // A subnormal result has fewer bits; a sum of products may lie below half of the smallest one.
  const int drop = std::max({width - precision, -1074 - exponent, 0});
  if (drop > width) {
    const double least = to_odd ? std::numeric_limits<double>::denorm_min() : 0;
    return negative ? -least : least;
  }
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
