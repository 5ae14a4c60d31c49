#include "assay/compare/causes/values/failing_pair.h"

#include <algorithm>

#include "assay/compare/measure/overflow.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

constexpr std::size_t sample_size = 4096;

// Evenly taken without knowing how many will come: whenever it is full, every other one is dropped.
class EvenSample {
 public:
  void offer(std::int64_t at, double actual, double reference) {
    if (seen_++ % stride_ != 0) return;
    if (sample_.at.size() == sample_size) {
      for (std::size_t i = 0; i < sample_size / 2; ++i) {
        sample_.at[i] = sample_.at[2 * i];
        sample_.actual[i] = sample_.actual[2 * i];
        sample_.reference[i] = sample_.reference[2 * i];
      }
      resize(sample_size / 2);
      stride_ *= 2;
      if ((seen_ - 1) % stride_ != 0) return;
    }
    sample_.at.push_back(at);
    sample_.actual.push_back(actual);
    sample_.reference.push_back(reference);
  }
  Sample take() { return std::move(sample_); }

 private:
  void resize(std::size_t size) {
    sample_.at.resize(size);
    sample_.actual.resize(size);
    sample_.reference.resize(size);
  }
  Sample sample_;
  std::int64_t seen_ = 0, stride_ = 1;
};

// Positions 0, s, 2s, .. would all lie in one column where s is a multiple of the row.
std::int64_t spread_position(std::int64_t taken, std::int64_t size) {
  const std::int64_t stride = std::max<std::int64_t>(1, size / static_cast<std::int64_t>(sample_size));
  return taken * stride + taken * 7919 % stride;
}

}  // namespace

FailingPair::FailingPair(const TensorSource& a, const TensorSource& r, const DiagnosisContext& c)
    : actual(a), reference(r), context(c) {
  EvenSample failing;
  std::int64_t next = 0;
  double square = 0, reference_square = 0;
  a.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> av = window.values(), rv = r.window(begin, window.size()).values();
    for (std::size_t i = 0; i < av.size(); ++i) {
      const auto at = begin + static_cast<std::int64_t>(i);
      const double b = bound(at), limit = allowed(rv[i], b);
      const double error = std::abs(av[i] - rv[i]);
      if (!(error <= limit) && !(ratio(av[i], rv[i], b) <= 1)) {
        ++over;
        over_finite += std::isfinite(av[i]) ? 1 : 0;
        failing.offer(at, av[i], rv[i]);
      } else {
        zeros += av[i] == 0 ? 1 : 0;
      }
      if (std::isfinite(av[i]) && std::isfinite(rv[i])) {
        largest_actual = std::max(largest_actual, std::abs(av[i]));
        square += av[i] * av[i];
        reference_square += rv[i] * rv[i];
        square_slack += limit * (2 * std::abs(rv[i]) + limit);
      } else {
        finite = false;
      }
      if (at != next) continue;
      spread.at.push_back(at);
      spread.actual.push_back(av[i]);
      spread.reference.push_back(rv[i]);
      next = spread_position(static_cast<std::int64_t>(spread.at.size()), a.size());
    }
  });
  square_gap = std::abs(square - reference_square);
  // Rounding of the sums themselves.
  square_slack += 1e-12 * (square + reference_square);
  wrong = failing.take();
}

double FailingPair::ratio(double a, double expected, double b) const {
  if (a == expected || (std::isnan(a) && std::isnan(expected))) return 0;
  if (!std::isfinite(a) || !std::isfinite(expected))
    return overflows_to(actual.dtype(), expected, a) ? 0 : infinity;
  const double limit = allowed(expected, b), error = std::abs(a - expected);
  return limit > 0 ? error / limit : infinity;
}

Fit verify(const FailingPair& pair, const Model& model) {
  Fit fit{0, 0, 0, 0};
  constexpr std::int64_t step = 1 << 14;
  std::vector<double> expected, bounds;
  for (std::int64_t begin = 0; begin < pair.actual.size(); begin += step) {
    const std::int64_t count = std::min(step, pair.actual.size() - begin);
    const std::vector<double> a = pair.actual.window(begin, count).values();
    const std::vector<double> r = pair.reference.window(begin, count).values();
    expected.assign(a.size(), 0);
    const std::span<const double> given = pair.context.allowed.bound;
    if (given.empty()) {
      bounds.assign(a.size(), 0);
    } else {
      const auto part = given.subspan(static_cast<std::size_t>(begin), a.size());
      bounds.assign(part.begin(), part.end());
    }
    model({begin, a, r, expected, bounds});
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double ratio = pair.ratio(a[i], expected[i], bounds[i]);
      if (!(ratio <= 1)) return {};
      fit.residual = std::max(fit.residual, ratio);
      fit.exact += a[i] == expected[i] ? 1 : 0;
      const auto at = begin + static_cast<std::int64_t>(i);
      if (pair.ratio(a[i], r[i], pair.bound(at)) <= 1) continue;
      const double before = a[i] - r[i], after = a[i] - expected[i];
      if (!std::isfinite(before) || !std::isfinite(after)) continue;
      fit.before += before * before;
      fit.after += after * after;
    }
  }
  return fit;
}

namespace {
double chance_among(const FailingPair& pair, std::span<const double> wanted, std::span<const double> values,
                    double factor, double share_of_all, double within = 1) {
  std::vector<double> decoys;
  for (const double v : values) {
    if (std::isfinite(v)) decoys.push_back(factor * v);
  }
  std::ranges::sort(decoys);
  const auto wrong = static_cast<double>(wanted.size());
  double hits = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double slack = within * pair.allowed(pair.wrong.actual[i], pair.bound(pair.wrong.at[i]));
    if (!std::isfinite(wanted[i])) continue;
    const auto low = std::ranges::lower_bound(decoys, wanted[i] - slack);
    hits += static_cast<double>(std::ranges::upper_bound(decoys, wanted[i] + slack) - low);
  }
  hits = std::max(0.0, hits - wrong * share_of_all);
  return (hits + 1) / (wrong * static_cast<double>(decoys.size()) + 2);
}
}  // namespace

double chance(const FailingPair& pair, double factor, bool own_place) {
  const auto among = [&](const Sample& sample, std::int64_t of) {
    const double share = static_cast<double>(sample.at.size()) / static_cast<double>(of);
    return chance_among(pair, pair.wrong.actual, sample.reference, factor, own_place ? share : 0);
  };
  const double of_all = among(pair.spread, pair.actual.size());
  return pair.wrong.at.size() < 64 ? of_all : std::max(of_all, among(pair.wrong, pair.over));
}

double chance(const FailingPair& pair, std::span<const double> wanted, const TensorSource& other,
              double factor, double within) {
  std::vector<double> values;
  for (std::int64_t at = 0; at < other.size();
       at = spread_position(static_cast<std::int64_t>(values.size()), other.size()))
    values.push_back(other.value(at));
  const double share = static_cast<double>(values.size()) / static_cast<double>(other.size());
  constexpr double rounding = 1e-6;  // of this comparison itself
  return chance_among(pair, wanted, values, factor, share, std::max(within, rounding));
}

bool looks_offset(const FailingPair& pair) {
  const Sample& w = pair.wrong;
  const double offset = w.actual[0] - w.reference[0];
  for (std::size_t i = 0; i < w.at.size(); ++i) {
    // Twice: the first error is as inexact as any.
    const double expected = w.reference[i] + offset, slack = 1e-6 * std::abs(offset);
    const double limit = 2 * pair.allowed(expected, pair.bound(w.at[i])) + slack;
    if (!(std::abs(w.actual[i] - expected) <= limit)) return false;
  }
  return true;
}

double evidence(const FailingPair& pair) {
  double bits = 0;
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) {
    const double error = std::abs(pair.wrong.actual[i] - pair.wrong.reference[i]);
    const double limit = pair.allowed(pair.wrong.reference[i], pair.bound(pair.wrong.at[i]));
    if (std::isfinite(error) && limit > 0) bits += std::max(0.0, std::log2(error / limit));
  }
  // Small integers meet each other.
  const double meets = chance(pair, 1, false);
  return std::min(bits, -std::log2(meets) * static_cast<double>(pair.wrong.at.size()));
}

bool convincing(const Fit& fit, double chance, double parameters, std::int64_t explained) {
  constexpr double margin = 1.5;  // how many bits a parameter has is a guess
  constexpr double quarter = 16;  // of squares
  const double evidence = -std::log2(std::min(1.0, chance)) * static_cast<double>(explained);
  return fit.residual <= 1 && fit.after * quarter <= fit.before && proves(evidence, margin * parameters);
}

}  // namespace assay
