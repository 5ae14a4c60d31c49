#include "assay/operators/engine/fitted_logits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <string>

#include "assay/golden/dtype.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

constexpr std::size_t most_classes = 1 << 14;  // that are looked at: they tell a number to a hundredth of u
constexpr std::size_t fewest_classes = 3;      // of a row: two always lie on a line

// A class of a token that is no target: its probability is proportional to its gradient.
struct Class {
  double logit, log_gradient;
};
using Row = std::vector<Class>;

// The gradient of a target has another sign than those of the others.
std::vector<Row> rows_of(const Tensor& logits, const Tensor& gradient) {
  const std::vector<double> x = logits.values(), g = gradient.values();
  const auto width = static_cast<std::size_t>(logits.shape().back());
  const double least = min_subnormal(gradient.dtype()) / unit_roundoff(gradient.dtype());
  std::vector<Row> rows;
  std::size_t classes = 0;
  for (std::size_t begin = 0; begin < x.size() && classes < most_classes; begin += width) {
    const auto positive = static_cast<std::size_t>(std::count_if(
        g.begin() + static_cast<std::ptrdiff_t>(begin),
        g.begin() + static_cast<std::ptrdiff_t>(begin + width), [](double v) { return v > 0; }));
    const double sign = 2 * positive > width ? 1 : -1;
    Row row;
    for (std::size_t i = begin; i < begin + width; ++i) {
      if (sign * g[i] >= least && std::isfinite(g[i]) && std::isfinite(x[i]))
        row.push_back({x[i], std::log(sign * g[i])});
    }
    if (row.size() < fewest_classes) continue;
    classes += row.size();
    rows.push_back(std::move(row));
  }
  return rows;
}

// log g = f(logit) + a number of the row, with one unknown in f.
using Curve = std::function<double(double logit, double unknown)>;

double scaled(double logit, double s) {
  return s * logit;
}
// The probability's logarithm, and that of the slope through which its gradient comes.
double capped(double logit, double c) {
  const double t = std::tanh(logit / c), slope = 1 - t * t;
  return c * t + std::log(slope > 0 ? slope : std::numeric_limits<double>::min());
}

struct Fit {
  double unknown, residual, error;  ///< residual: sum of squares; error: of the unknown, one sigma
  double better;                    ///< the unknown that would be right if the curve were straight in it
};

// Least squares; each row has a number of its own.
Fit fit_at(double unknown, const std::vector<Row>& rows, const Curve& curve) {
  const double step = 1e-6 * unknown;
  double square = 0, product = 0, residual = 0, free = 0;
  for (const Row& row : rows) {
    const auto n = static_cast<double>(row.size());
    const auto left_at = [&](const Class& c) { return c.log_gradient - curve(c.logit, unknown); };
    const double first = left_at(row.front());  // without the number of the row little cancels below
    double of_r = 0, of_d = 0, rr = 0, dd = 0, rd = 0;
    for (const Class& c : row) {
      const double d = (curve(c.logit, unknown + step) - curve(c.logit, unknown - step)) / (2 * step),
                   r = left_at(c) - first;
      of_r += r;
      of_d += d;
      rr += r * r;
      dd += d * d;
      rd += r * d;
    }
    residual += std::max(0., rr - of_r * of_r / n);
    square += std::max(0., dd - of_d * of_d / n);
    product += rd - of_r * of_d / n;
    free += n - 1;
  }
  return {unknown, residual, std::sqrt(residual / free / square), unknown + product / square};
}

Fit fitted(double guess, const std::vector<Row>& rows, const Curve& curve) {
  constexpr int passes = 8;  // of Gauss and Newton: a straight line takes one
  Fit fit = fit_at(guess, rows, curve);
  for (int pass = 0; pass < passes && std::isfinite(fit.better) && fit.better > 0; ++pass)
    fit = fit_at(fit.better, rows, curve);
  return fit;
}

// As people write it, where the gradient allows it; as it is at last.
std::vector<Candidate> numbers_of(std::string_view attribute, const Fit& fit, bool or_reciprocal) {
  std::vector<double> numbers;
  const auto add = [&](double v) {
    if (std::abs(v - fit.unknown) <= improbable * fit.error && std::ranges::find(numbers, v) == numbers.end())
      numbers.push_back(v);
  };
  for (const int digits : {1, 2, 3, 6}) {
    add(std::stod(fmt::format("{:.{}g}", fit.unknown, digits)));
    if (or_reciprocal) add(1 / std::stod(fmt::format("{:.{}g}", 1 / fit.unknown, digits)));
  }
  add(fit.unknown);
  std::vector<Candidate> all;
  for (const double v : numbers)
    all.push_back({{{std::string(attribute), v}}, fmt::format("{} = {:.6g}", attribute, v)});
  return all;
}

}  // namespace

std::vector<Candidate> fitted_logits(const Tensor& logits, const Tensor& gradient) {
  constexpr double lowest_cap = 1, highest_cap = 1e3, between_guesses = 1.25;
  if (logits.shape().size() < 2 || logits.shape().back() == 0 || logits.shape() != gradient.shape())
    return {};
  const std::vector<Row> rows = rows_of(logits, gradient);
  if (rows.empty()) return {};
  double classes = 0;
  for (const Row& row : rows) classes += static_cast<double>(row.size() - 1);
  const Fit plain = fit_at(1, rows, scaled), scale = fitted(1, rows, scaled);
  Fit guess = fit_at(lowest_cap, rows, capped);
  for (double c = lowest_cap; c <= highest_cap; c *= between_guesses) {
    const Fit other = fit_at(c, rows, capped);
    if (other.residual < guess.residual) guess = other;
  }
  const Fit cap = fitted(guess.unknown, rows, capped);
  // By accident one unknown takes no more than improbable^2 of the variances that are left.
  const auto shows = [&](const Fit& fit) {
    return (plain.residual - fit.residual) * classes > improbable * improbable * fit.residual;
  };
  std::vector<Candidate> scales, caps;
  if (shows(scale)) scales = numbers_of("logit_scale", scale, true);
  if (shows(cap)) caps = numbers_of("softcap", cap, false);
  const bool is_capped = cap.residual < scale.residual;
  std::vector<Candidate> all = is_capped ? caps : scales;
  std::ranges::copy(is_capped ? scales : caps, std::back_inserter(all));
  return all;
}

}  // namespace assay
