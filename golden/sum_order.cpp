#include "assay/golden/sum_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "assay/golden/arithmetic.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// a + b rounded once: the odd neighbour of a sum that is no float64 is rounded as the sum is (Boldo and
// Melquiond 2008, doi:10.1109/TC.2007.70819).
double rounded_sum(double a, double b, DType dtype) {
  const double sum = a + b;
  if (dtype == DType::float64 || !std::isfinite(sum)) return sum;
  const double rest = rounding_of_sum(a, b, sum);
  const double odd = rest == 0 ? sum : to_odd(sum, rest < 0);
  return dtype == DType::float32 ? static_cast<double>(static_cast<float>(odd)) : round_to(dtype, odd);
}

// x to nearest of 1/(2u) significands. Dekker 1971, sec. 5.7; u of float64 and below: as it is.
double shortened(double x, double u) {
  if (u <= 0x1p-53) return x;
  const double big = (0x1p53 * u + 1) * x;
  return big - (big - x);
}

}  // namespace

SumOrder::SumOrder(std::int64_t terms, std::vector<Addition> additions)
    : terms_(terms), additions_(std::move(additions)) {
  if (terms_ < 1) throw Error("an order of {} terms; expected at least one", terms_);
  const std::int64_t all = terms_ + static_cast<std::int64_t>(additions_.size());
  std::vector<bool> used(index(all), false);
  for (std::int64_t at = terms_; at < all; ++at) {
    const Addition& addition = additions_[index(at - terms_)];
    if (addition.size() < 2) throw Error("an addition of {} operands; expected two or more", addition.size());
    for (const Operand operand : addition) {
      if (operand < 0 || operand >= at || used[index(operand)])
        throw Error("order of {} terms: expected each term and each partial sum once, and before its use",
                    terms_);
      used[index(operand)] = true;
    }
  }
  const auto left_out = std::ranges::find(used.begin(), used.end() - 1, false);
  if (left_out != used.end() - 1)
    throw Error("order of {} terms: {} {} is added nowhere; expected each one once", terms_,
                left_out - used.begin() < terms_ ? "term" : "partial sum",
                (left_out - used.begin()) % terms_);
}

bool SumOrder::is_binary() const {
  return std::ranges::all_of(additions_, [](const Addition& a) { return a.size() == 2; });
}

std::int64_t SumOrder::depth() const {
  std::vector<std::int64_t> depth(index(terms_), 0);
  for (const Addition& addition : additions_) {
    std::int64_t deepest = 0;
    for (const Operand operand : addition) deepest = std::max(deepest, depth[index(operand)]);
    depth.push_back(deepest + 1);
  }
  return depth.back();
}

double SumOrder::add_up(std::span<const double> terms, DType accumulator, bool is_fma) const {
  std::vector<double> values(terms.begin(), terms.end());
  const auto entering = [&](Operand operand, bool is_first) {
    const double value = values[index(operand)];
    return operand < terms_ && (is_first || !is_fma) ? round_to(accumulator, value) : value;
  };
  for (const Addition& addition : additions_) {
    const double first = entering(addition[0], true), second = entering(addition[1], false);
    if (addition.size() == 2) {
      values.push_back(rounded_sum(first, second, accumulator));
      continue;
    }
    UnroundedSum sum;
    sum.add(static_cast<std::int64_t>(addition.size()),
            [&](auto i) { return entering(addition[index(i)], i == 0); });
    values.push_back(sum.value().round(accumulator));
  }
  return additions_.empty() ? entering(0, true) : values.back();
}

SumOrder::Loss SumOrder::loss(std::span<const Bound> terms, double u) const {
  Loss loss;
  std::array<double, 2048> of_binades{};  // by the bits of an exponent
  // golden values, the most that a device's may be off, and what one that rounds to nearest has
  std::vector<double> values, errors, rounded;
  for (const Bound& term : terms) {
    values.push_back(term.value);
    errors.push_back(term.error);
    rounded.push_back(shortened(term.value, u));
  }
  for (const Addition& addition : additions_) {
    double value = 0, inherited = 0, largest = 0, sum = 0, rest = 0;
    for (const Operand operand : addition) {
      const std::size_t i = index(operand);
      value += values[i];
      inherited += errors[i];
      largest = std::max(largest, std::abs(values[i]) + errors[i]);
      rest += add_to(sum, rounded[i]);
    }
    double lost = u * (std::abs(value) + inherited);
    if (addition.size() > 2) lost = 2 * lost + 2 * u * static_cast<double>(addition.size()) * largest;
    loss.guaranteed += lost;
    loss.squares += value * value;
    values.push_back(value);
    errors.push_back(inherited + lost);
    rounded.push_back(shortened(sum + rest, u));
    of_binades[std::bit_cast<std::uint64_t>(rounded.back()) >> 52 & 0x7ff] += (rounded.back() - sum) - rest;
  }
  for (const double lost : of_binades) loss.alike += std::abs(lost);
  return loss;
}

}  // namespace assay
