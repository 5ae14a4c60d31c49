#include "assay/golden/unrounded.h"

#include <limits>

#include "assay/golden/arithmetic.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// The parts, largest first, of a finite sum; it is used up.
Unrounded parts_of(ExactSum& sum) {
  const double nearest = sum.round();
  if (std::isinf(nearest)) throw Error("a sum of finite numbers is beyond the range of float64");
  if (nearest == 0) return nearest;
  sum.add(-nearest);
  return {nearest, parts_of(sum)};
}

using Levels = std::array<double, 4>;

// The same sum as parts. False, the sum still the same, where that would take more than a few additions.
bool separate(Levels& levels) {
  if (levels[1] == 0 && levels[2] == 0 && levels[3] == 0) return true;  // -0 stays
  constexpr int passes = 3;
  for (int pass = 0; pass < passes; ++pass) {
    for (std::size_t i = levels.size() - 1; i-- > 0;) levels[i + 1] = add_to(levels[i], levels[i + 1]);
    if (levels[2] == 0 && levels[3] == 0) return true;
  }
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    // What is below the next level changes it by at most half of its last bit: not beyond this.
    const bool lowest = i + 2 == levels.size() || levels[i + 2] == 0;
    const double rest = lowest ? levels[i + 1] : levels[i + 1] * (1 + 0x1p-52);
    if (levels[i] + rest != levels[i]) return false;
  }
  return true;
}

}  // namespace

double Unrounded::before(DType dtype) const {
  return dtype == DType::float64 || second_ == 0 ? nearest_ : to_odd(nearest_, second_ < 0);
}

Unrounded Unrounded::operator-() const {
  Unrounded negative(*this);
  for (Unrounded* at = &negative; at != nullptr; at = at->further_.get()) {
    at->nearest_ = -at->nearest_;
    at->second_ = -at->second_;
    at->third_ = -at->third_;
  }
  return negative;
}

Unrounded operator+(const Unrounded& a, const Unrounded& b) {
  UnroundedSum sum;
  sum.add(2, [&](auto i) -> const Unrounded& { return i == 0 ? a : b; });
  return sum.value();
}

void UnroundedSum::add_aside(double x) {
  if (std::abs(x) < large) {
    for (double& level : lower_) x = add_to(level, x);
    if (x == 0) return;
  }
  if (!std::isfinite(x)) {
    not_finite_ += x;
    return;
  }
  if (!aside_) aside_ = std::make_unique<ExactSum>();
  aside_->add(x);
}

Unrounded UnroundedSum::value() const {
  if (std::isnan(not_finite_)) return std::numeric_limits<double>::quiet_NaN();
  if (not_finite_ != 0) return not_finite_;
  Levels levels = {high_, low_, lower_[0], lower_[1]};
  if (!aside_ && separate(levels)) return {levels[0], {levels[1], {levels[2], levels[3]}}};
  ExactSum sum = aside_ ? *aside_ : ExactSum();
  for (const double level : levels) sum.add(level);
  return parts_of(sum);
}

}  // namespace assay
