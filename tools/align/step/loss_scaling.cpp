#include "assay/align/step/loss_scaling.h"

#include <algorithm>
#include <cmath>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::frexp(x, &exponent) == 0.5;
}

}  // namespace

LossScaler::LossScaler(const LossScaling& s) : settings_(s), scale_(s.initial), tolerated_(s.hysteresis) {
  for (const double x : {s.initial, s.least, s.growth, s.backoff}) {
    if (!is_power_of_two(x))
      throw Error("loss scaling: {} is not a power of two; it would round what it scales", x);
  }
}

// The overflows that are tolerated count since the scale last grew, not in a row.
void LossScaler::update(bool overflow) {
  if (overflow) {
    finite_ = 0;
    if (--tolerated_ <= 0) scale_ = std::max(scale_ * settings_.backoff, settings_.least);
  } else if (++finite_ == settings_.interval) {
    finite_ = 0;
    tolerated_ = settings_.hysteresis;
    scale_ *= settings_.growth;
  }
}

}  // namespace assay::align
