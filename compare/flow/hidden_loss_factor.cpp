// The factor of a loss that its gradient shows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "assay/compare/flow/hidden_loss.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// The fraction of the smallest denominator, by continued fractions (Graham, Knuth and Patashnik, Concrete
// Mathematics, sec. 4.5): losses are divided by numbers of micro-batches, ranks, tokens.
struct Fraction {
  double numerator, denominator;
};
Fraction simplest_between(double low, double high) {
  constexpr int most_terms = 16;  // more than two doubles have in common
  double terms[most_terms];
  int count = 0;
  while (count + 1 < most_terms && std::floor(low) == std::floor(high) && std::floor(low) < low) {
    terms[count++] = std::floor(low);
    low = 1 / (std::exchange(high, 1 / (low - std::floor(low))) - terms[count - 1]);
  }
  Fraction simplest = {std::ceil(low), 1};
  while (count > 0)
    simplest = {terms[--count] * simplest.numerator + simplest.denominator, simplest.numerator};
  return simplest;
}

}  // namespace

// The factors with which each element is off by no more than its error: |m - f u| <= a + |f| e. They are an
// interval for each sign of f.
std::optional<HiddenLosses::Interval> HiddenLosses::factors(double sign, const DerivedValue& unit,
                                                            const std::vector<double>& missing,
                                                            const std::vector<double>& allowed) {
  double low = 0, high = std::numeric_limits<double>::infinity();  // of |f|
  const auto limit = [&](double c, double b) {                     // |f| c <= b
    if (c > 0) high = std::min(high, b / c);
    if (c < 0) low = std::max(low, b / c);
    if (!(c != 0 || b >= 0)) high = -1;
  };
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const double u = sign * unit.values[i], e = unit.error[i];
    limit(u - e, missing[i] + allowed[i]);
    limit(-u - e, allowed[i] - missing[i]);
  }
  return low <= high ? std::optional(Interval{low, high}) : std::nullopt;
}

bool HiddenLosses::fit_factor(Loss& loss, const DerivedValue& unit, const std::vector<double>& missing,
                              const std::vector<double>& allowed, double choices) {
  for (const double sign : {1.0, -1.0}) {
    const auto possible = factors(sign, unit, missing, allowed);
    if (!possible || !std::isfinite(possible->high)) continue;
    const auto [low, high] = *possible;
    double size = (low + high) / 2;
    loss.bits = 0;
    if (low > 0) {
      const Fraction simplest = simplest_between(low, high);
      size = std::clamp(simplest.numerator / simplest.denominator, low, high);
      loss.bits =
          std::max(0.0, std::log2(2 * size / (simplest.numerator * simplest.denominator * (high - low))));
    }
    loss.bits -= (loss.numbers - 1) * bits_of_a_number;
    loss.factor = sign * size;
    loss.reach = std::max(high - size, size - low);
    double bits = 0;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const double given = std::abs(loss.factor * unit.values[i]),
                   slack = allowed[i] + std::abs(loss.factor) * unit.error[i] +
                           loss.reach * std::abs(unit.values[i]);
      if (given > slack) bits += std::log2(given / slack);
    }
    if (proves(bits, loss.numbers * bits_of_a_number + choices)) return true;
  }
  return false;
}

}  // namespace assay
