#include "assay/compare/causes/values/other_tensor.h"

#include <algorithm>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Its elements [begin, begin + count) repeated for every row.
void read(const TensorSource& term, std::int64_t begin, std::span<double> out) {
  for (std::size_t done = 0; done < out.size();) {
    const std::int64_t at = (begin + static_cast<std::int64_t>(done)) % term.size();
    const std::int64_t count = std::min(static_cast<std::int64_t>(out.size() - done), term.size() - at);
    const Tensor part = term.window(at, count);
    decode(part.dtype(), part.bytes(), out.subspan(done, static_cast<std::size_t>(count)));
    done += static_cast<std::size_t>(count);
  }
}

// Of errors onto the term, in units of the tolerance.
class LineFit {
 public:
  void add(double error, double term, double limit) {
    if (!std::isfinite(error) || !std::isfinite(term) || !(limit > 0)) return;
    product_ += error / limit * (term / limit);
    square_ += term / limit * (term / limit);
  }
  double factor() const { return square_ > 0 ? product_ / square_ : 0; }

 private:
  double product_ = 0, square_ = 0;
};

double fitted_factor(const FailingPair& pair, const TensorSource& term) {
  LineFit fit;
  std::vector<double> t;
  pair.actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values();
    const std::vector<double> r = pair.reference.window(begin, window.size()).values();
    t.resize(a.size());
    read(term, begin, t);
    for (std::size_t i = 0; i < a.size(); ++i)
      fit.add(a[i] - r[i], t[i], pair.allowed(r[i], pair.bound(begin + static_cast<std::int64_t>(i))));
  });
  return fit.factor();
}

// What is added was stored, and a sum with it may be larger than what would have been stored.
double stored(const FailingPair& pair, double reference, double added, double sums) {
  const double more =
      sums > 1 ? std::abs(added) : std::max(0.0, std::abs(reference + added) - std::abs(reference));
  return rounding_of(pair.actual.dtype()) * (std::abs(added) + sums * more);
}

// Some multiple of the term may explain the sample: with twice the tolerance, as it is not fitted yet.
bool plausible(const FailingPair& pair, const TensorSource& other, double sums) {
  const Sample& w = pair.wrong;
  std::vector<double> term;
  for (const std::int64_t at : w.at) term.push_back(other.value(at % other.size()));
  LineFit fit;
  for (std::size_t i = 0; i < w.at.size(); ++i)
    fit.add(w.actual[i] - w.reference[i], term[i], pair.allowed(w.reference[i], pair.bound(w.at[i])));
  for (std::size_t i = 0; i < w.at.size(); ++i) {
    const double added = fit.factor() * term[i], bound = pair.bound(w.at[i]);
    const double expected = w.reference[i] + added;
    if (!(pair.ratio(w.actual[i], expected, bound + stored(pair, w.reference[i], added, sums)) <= 2))
      return false;
  }
  return true;
}

Fit verify_sum(const FailingPair& pair, double factor, const TensorSource& term, double sums) {
  return verify(pair, [&](const ElementWindow& w) {
    read(term, w.begin, w.expected);
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      const double added = factor * w.expected[i];
      w.expected[i] = w.reference[i] + added;
      w.bound[i] += stored(pair, w.reference[i], added, sums);
    }
  });
}

}  // namespace

double bits_of_choice(std::size_t tried) {
  return std::log2(static_cast<double>(std::max<std::size_t>(tried, 1)));
}

std::optional<double> equals(const FailingPair& pair, const TensorSource& other, std::size_t tried) {
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i) {
    const std::int64_t at = pair.wrong.at[i];
    if (!(pair.ratio(pair.wrong.actual[i], other.value(at), pair.bound(at)) <= 1)) return {};
  }
  const Fit fit = verify(pair, [&](const ElementWindow& w) { read(other, w.begin, w.expected); });
  const double accident = chance(pair, pair.wrong.actual, other, 1, fit.residual);
  if (!convincing(fit, accident, bits_of_choice(tried), pair.over_finite)) return {};
  return fit.residual;
}

std::optional<double> equals_where_wrong(const FailingPair& pair, const TensorSource& other) {
  const Fit fit = verify(pair, [&](const ElementWindow& w) {
    read(other, w.begin, w.expected);
    for (std::size_t i = 0; i < w.expected.size(); ++i) {
      if (pair.ratio(w.actual[i], w.reference[i], w.bound[i]) <= 1) w.expected[i] = w.reference[i];
    }
  });
  const double accident = chance(pair, pair.wrong.actual, other, 1, fit.residual);
  if (!convincing(fit, accident, 0, pair.over_finite)) return {};
  return fit.residual;
}

std::optional<double> added_rows(const FailingPair& pair, const TensorSource& table) {
  constexpr std::int64_t most_elements = 1 << 24;
  const Shape &shape = pair.actual.shape(), &rows = table.shape();
  if (!pair.finite || shape.empty() || rows.size() != 2 || rows[1] != shape.back() || rows[1] < 2 ||
      table.size() > most_elements || pair.actual.size() > most_elements)
    return {};
  const auto columns = static_cast<std::size_t>(rows[1]);
  const std::vector<double> a = pair.actual.whole().values(), r = pair.reference.whole().values(),
                            t = table.whole().values();
  double residual = 0, wrong = 0;
  // The largest error of a row with this one of the table.
  const auto left = [&](std::size_t row, std::size_t of_table) {
    double worst = 0;
    for (std::size_t c = 0; c < columns && worst <= 1; ++c) {
      const std::size_t at = row * columns + c;
      worst = std::max(worst, pair.ratio(a[at], r[at] + t[of_table * columns + c],
                                         pair.bound(static_cast<std::int64_t>(at))));
    }
    return worst;
  };
  for (std::size_t row = 0; row < a.size() / columns; ++row) {
    bool is_right = true;
    for (std::size_t at = row * columns; at < (row + 1) * columns; ++at)
      is_right = is_right && pair.ratio(a[at], r[at], pair.bound(static_cast<std::int64_t>(at))) <= 1;
    if (is_right) continue;
    ++wrong;
    double best = infinity;
    for (std::size_t k = 0; k < t.size() / columns && !(best <= 1); ++k) best = left(row, k);
    if (!(best <= 1)) return {};
    residual = std::max(residual, best);
  }
  // The sample has some rows only; its errors speak for as many rows as it has elements for.
  const double rows_seen = std::min(wrong, static_cast<double>(pair.wrong.at.size()));
  if (!proves(evidence(pair), rows_seen * std::log2(static_cast<double>(rows[0])))) return {};
  return residual;
}

std::optional<AddedTerm> added_term(const FailingPair& pair, const TensorSource& term, std::size_t tried,
                                    double sums) {
  if (!plausible(pair, term, sums)) return {};
  double factor = fitted_factor(pair, term);
  Fit fit = verify_sum(pair, factor, term, sums);
  if (!(fit.residual <= 1)) return {};
  const double largest_rest = 2 * fit.after;  // rounding alone leaves as much
  factor = shortened(factor, [&](double candidate) {
    const Fit shorter = verify_sum(pair, candidate, term, sums);
    if (!(shorter.residual <= 1) || shorter.after > largest_rest) return false;
    fit = shorter;
    return true;
  });
  std::vector<double> errors;
  for (std::size_t i = 0; i < pair.wrong.at.size(); ++i)
    errors.push_back(pair.wrong.actual[i] - pair.wrong.reference[i]);
  // A row that is added to all others is no more evidence than one of them.
  const std::int64_t explained = std::min(pair.over_finite, term.size());
  const double parameters = bits_of_a_number + bits_of_choice(tried);
  if (!convincing(fit, chance(pair, errors, term, factor, fit.residual), parameters, explained)) return {};
  return AddedTerm{factor, fit.residual};
}

}  // namespace assay
