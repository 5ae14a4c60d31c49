#include "assay/operators/engine/fitted_turns.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "assay/golden/dtype.h"
#include "assay/golden/evidence.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

using Complex = std::complex<double>;

// Each component of a turned pair is two products of a rounded table's entries and their sum: it is off by
// 3u (|x| + |y|) at most, so by 3 sqrt(2) u of the pair's length, and the pair's angle by sqrt(2) as much.
constexpr double most_of_roundings = 6;

// What all heads and sequences have of one pair: for each token the sum of conj(x) y, which points to the
// angle of the turn.
std::vector<Complex> pointers(const std::vector<double>& x, const std::vector<double>& y, const Shape& shape,
                              const TurnedChannels& of, std::int64_t pair) {
  const std::int64_t T = shape[of.sequence_dim], C = shape.back(),
                     stride = strides_of(shape)[of.sequence_dim];
  const std::int64_t i = of.half ? pair : 2 * pair, j = of.half ? pair + of.rotated / 2 : 2 * pair + 1;
  std::vector<Complex> sums(static_cast<std::size_t>(T));
  const auto complex = [&](const std::vector<double>& v, std::int64_t row) {
    return Complex(v[static_cast<std::size_t>(row + i)], v[static_cast<std::size_t>(row + j)]);
  };
  for (std::int64_t row = 0; row < std::ssize(x); row += C)
    sums[static_cast<std::size_t>(row / stride % T)] += std::conj(complex(x, row)) * complex(y, row);
  return sums;
}

double remainder_of_turn(double angle) {
  return std::remainder(angle, 2 * std::numbers::pi);
}

// From neighbours to ever more distant tokens, each of which tells the frequency more exactly.
double first_guess(const std::vector<Complex>& sums) {
  double f = 0;
  for (std::size_t lag = 1; lag < sums.size(); lag *= 2) {
    Complex turned = 0;
    for (std::size_t t = lag; t < sums.size(); ++t) turned += std::conj(sums[t - lag]) * sums[t];
    const double distance = static_cast<double>(lag);
    f += remainder_of_turn(std::arg(turned) - distance * f) / distance;
  }
  return f;
}

struct Line {
  double frequency, largest_residual, error_per_residual;
};

// The weighted least squares through 0: angle = frequency position.
Line line_through(const std::vector<Complex>& sums, const std::vector<std::int64_t>& positions,
                  double guess) {
  double product = 0, square = 0, reach = 0;
  for (std::size_t t = 0; t < sums.size(); ++t) {
    const double p = static_cast<double>(positions[t]), w = std::abs(sums[t]);
    product += w * p * remainder_of_turn(std::arg(sums[t]) - guess * p);
    square += w * p * p;
    reach += w * std::abs(p);
  }
  Line line{guess + (square > 0 ? product / square : 0), 0, square > 0 ? reach / square : 0};
  for (std::size_t t = 0; t < sums.size(); ++t) {
    const double p = static_cast<double>(positions[t]);
    if (std::abs(sums[t]) > 0)
      line.largest_residual = std::max(line.largest_residual,
                                       std::abs(remainder_of_turn(std::arg(sums[t]) - line.frequency * p)));
  }
  return line;
}

}  // namespace

std::optional<FittedTurns> fitted_turns(const Tensor& x, const Tensor& y, const TurnedChannels& of,
                                        const std::vector<std::int64_t>& positions) {
  const std::int64_t T = x.shape()[of.sequence_dim], C = x.shape().back();
  const bool is_counted = std::ranges::adjacent_find(positions, [](std::int64_t a, std::int64_t b) {
                            return b != a + 1;
                          }) == positions.end();
  if (x.shape() != y.shape() || x.size() == 0 || !is_counted || std::ssize(positions) != T || of.rotated > C)
    return {};
  // What the first token has shows no turn; of the others one element is taken up by each frequency.
  const double u = std::max(unit_roundoff(x.dtype()), unit_roundoff(y.dtype())), bits = -std::log2(u);
  const auto elements = static_cast<double>(2 * (T - 1) * (x.size() / C / T));
  if (!proves(elements * bits, bits)) return {};
  const std::vector<double> from = x.values(), to = y.values();
  FittedTurns fitted;
  for (std::int64_t pair = 0; pair < of.rotated / 2; ++pair) {
    const std::vector<Complex> sums = pointers(from, to, x.shape(), of, pair);
    const Line line = line_through(sums, positions, first_guess(sums));
    if (!(line.largest_residual <= most_of_roundings * u)) return {};
    fitted.frequencies.push_back(line.frequency);
    // A turn below the rounding of the result may not show at all.
    fitted.errors.push_back(std::max(line.largest_residual, u) * line.error_per_residual);
  }
  double before = 0, after = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool turns = static_cast<std::int64_t>(i) % C < of.rotated;
    before += turns ? from[i] * from[i] : 0;
    after += turns ? to[i] * to[i] : 0;
  }
  if (before > 0) fitted.magnitude = std::sqrt(after / before);
  return fitted;
}

std::vector<std::int64_t> rotated_channels(const Tensor& x, const Tensor& y) {
  if (x.shape() != y.shape() || x.shape().empty()) return {};
  const std::vector<double> from = x.values(), to = y.values();
  const std::int64_t C = x.shape().back();
  std::int64_t turned = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != to[i]) turned = std::max(turned, static_cast<std::int64_t>(i) % C + 1);
  }
  turned += turned % 2;
  std::vector<std::int64_t> counts;
  if (C % 2 == 0) counts.push_back(C);
  if (turned > 0 && turned < C) counts.push_back(turned);
  return counts;
}

}  // namespace assay
