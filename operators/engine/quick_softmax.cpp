#include "assay/operators/engine/quick_softmax.h"

#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "assay/golden/accumulator.h"
#include "assay/golden/bound_lanes.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

namespace assay {
namespace {

// Sums have as many parts on every machine, whatever its registers hold.
constexpr std::size_t lanes_of_sums = 8;

struct Sums {
  double value[lanes_of_sums] = {}, error[lanes_of_sums] = {}, squares[lanes_of_sums] = {};
};

// Those that lack in the last are alike.
template <int N>
inline BoundLanes<N> load(const Bound* from, std::size_t there) {
  BoundLanes<N> x;
  for (std::size_t k = 0; k < N; ++k) {
    const Bound& b = from[k < there ? k : there - 1];
    x.value[k] = b.value;
    x.error[k] = b.error;
  }
  return x;
}
template <int N>
inline void store(const BoundLanes<N>& x, Bound* to, std::size_t there) {
  for (std::size_t k = 0; k < N && k < there; ++k) to[k] = {x.value[k], x.error[k]};
}

// e^(x + d) - e^x >= e^x (d + d^2 / 2): errors of narrow scores are no longer small.
template <int N>
inline BoundLanes<N> exp_of(const BoundLanes<N>& x) {
  return exp(BoundLanes<N>(x.value, x.error * (1 + 0.5 * x.error)));
}

template <int N>
inline void exponentials(std::span<Bound> scores, std::size_t top, Sums& sums) {
  constexpr std::size_t parts = lanes_of_sums / N;
  Doubles<N> value[parts] = {}, error[parts] = {}, squares[parts] = {};
  const BoundLanes<N> largest(scores[top].value);
  for (std::size_t i = 0; i < scores.size(); i += N) {
    const std::size_t there = scores.size() - i, part = i / N % parts;
    const BoundLanes<N> e = exp_of(load<N>(&scores[i], there) - largest);
    store(e, &scores[i], there);
    Doubles<N> v = e.value, d = e.error;
    for (std::size_t k = there; k < N; ++k) v[k] = d[k] = 0;
    if (i <= top && top < i + N) v[top - i] = 0;
    value[part] += v;
    error[part] += d;
    squares[part] += v * v;
  }
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::size_t k = 0; k < N; ++k) {
      sums.value[part * N + k] = value[part][k];
      sums.error[part * N + k] = error[part][k];
      sums.squares[part * N + k] = squares[part][k];
    }
  }
}

template <int N>
inline void quotients(const Bound& by, std::span<Bound> x) {
  const BoundLanes<N> divisor(by);
  for (std::size_t i = 0; i < x.size(); i += N)
    store(load<N>(&x[i], x.size() - i) / divisor, &x[i], x.size() - i);
}

#ifdef ASSAY_WIDE_LANES
ASSAY_FOUR_LANES void exponentials_of_four(std::span<Bound> scores, std::size_t top, Sums& sums) {
  exponentials<4>(scores, top, sums);
}
ASSAY_EIGHT_LANES void exponentials_of_eight(std::span<Bound> scores, std::size_t top, Sums& sums) {
  exponentials<8>(scores, top, sums);
}
ASSAY_FOUR_LANES void quotients_of_four(const Bound& by, std::span<Bound> x) {
  quotients<4>(by, x);
}
ASSAY_EIGHT_LANES void quotients_of_eight(const Bound& by, std::span<Bound> x) {
  quotients<8>(by, x);
}
#endif

// Asking the processor takes longer than a row.
int widest() {
  static const int lanes = [] {
#ifdef ASSAY_WIDE_LANES
    const std::int64_t targets = hwy::SupportedTargets();
    if ((targets & HWY_AVX3) != 0) return 8;
    if ((targets & HWY_AVX2) != 0) return 4;
#endif
    return 2;
  }();
  return lanes;
}

double total(const double (&parts)[lanes_of_sums]) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace

bool are_finite(std::span<const Bound> numbers) {
  return std::ranges::all_of(numbers,
                             [](const Bound& x) { return std::isfinite(x.value) && std::isfinite(x.error); });
}

ExponentialSums take_exponentials(std::span<Bound> scores, std::size_t top) {
  Sums sums;
  switch (widest()) {
#ifdef ASSAY_WIDE_LANES
    case 8:
      exponentials_of_eight(scores, top, sums);
      break;
    case 4:
      exponentials_of_four(scores, top, sums);
      break;
#endif
    default:
      exponentials<2>(scores, top, sums);
  }
  const double others = total(sums.value), error = total(sums.error), squares = total(sums.squares),
               u = ErrorScope::current().unit_roundoff;
  const auto n = static_cast<std::int64_t>(scores.size());
  const auto sum = [&](double value, double of_squares) {
    return settled(value, error + least_loss(n, value, of_squares, u));
  };
  return {sum(others + 1, squares + 1), sum(others, squares)};
}

void divide_by(const Bound& by, std::span<Bound> x) {
  switch (widest()) {
#ifdef ASSAY_WIDE_LANES
    case 8:
      return quotients_of_eight(by, x);
    case 4:
      return quotients_of_four(by, x);
#endif
    default:
      return quotients<2>(by, x);
  }
}

}  // namespace assay

#pragma GCC diagnostic pop
