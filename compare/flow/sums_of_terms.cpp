#include "assay/compare/flow/sums_of_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "assay/compare/calls/weighted_columns.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

bool is_as_large(const Shape& c, const LogicalTensor& t) {
  return element_count(c) == element_count(t.shape);
}
// Several rows of its width.
bool is_repeatable(const Shape& c, const LogicalTensor& t) {
  const std::int64_t size = element_count(c);
  return c.size() >= 2 && !t.shape.empty() && c.back() == t.shape.back() && size > 0 &&
         size < element_count(t.shape) && element_count(t.shape) % size == 0;
}

}  // namespace

std::optional<Relation> SumsOfTerms::of_terms(const LogicalTensor& t, const SideTensor& tensor) const {
  const Terms own = nearest(t, [&](const Shape& c) { return is_as_large(c, t); });
  const std::size_t n = own.size();
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      if (auto r = sum(tensor, {own[a], own[b]})) return r;
    }
  }
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      for (std::size_t c = b + 1; c < n; ++c) {
        if (auto r = sum(tensor, {own[a], own[b], own[c]})) return r;
      }
    }
  }
  const Terms repeated = nearest(t, [&](const Shape& c) { return is_repeatable(c, t); });
  for (const Term& a : own) {
    for (const Term& b : repeated) {
      if (auto r = sum(tensor, {a, b})) return r;
    }
  }
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      for (const Term& c : repeated) {
        if (auto r = sum(tensor, {own[a], own[b], c})) return r;
      }
    }
  }
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a; b < n; ++b) {
      const Terms terms = b == a ? Terms{own[a]} : Terms{own[a], own[b]};
      const auto factors = factors_of(tensor, terms);
      if (factors && std::ranges::all_of(*factors, [](double f) { return f == 1; })) continue;  // tried above
      auto r = factors ? sum(tensor, terms, *factors) : std::nullopt;
      if (r) return r;
    }
  }
  return {};
}

SumsOfTerms::Terms SumsOfTerms::nearest(const LogicalTensor& t,
                                        const std::function<bool(const Shape&)>& fits) const {
  Terms terms;
  candidates_.for_each_near(
      t, [&](const EarlierValues::Kind& kind) { return fits(kind.shape); },
      [&](std::size_t c) {
        terms.push_back({c, side_.read(*candidates_[c].tensor)});
        return terms.size() < most_terms;
      });
  return terms;
}

std::optional<Relation> SumsOfTerms::sum(const SideTensor& total, const Terms& terms,
                                         std::vector<double> factors) const {
  if (!add_up(total, terms, factors)) return {};
  Relation r{.kind = Relation::Kind::sum, .factors = std::move(factors)};
  for (const Term& term : terms) r.sources.push_back(candidates_[term.candidate].name);
  return r;
}

// By least squares over some elements, the roundings of which say how exact that is; each as short a number
// as it allows.
std::optional<std::vector<double>> SumsOfTerms::factors_of(const SideTensor& total, const Terms& terms) {
  constexpr std::size_t enough = 1 << 12;
  const std::size_t stride = total.values.size() / enough + 1;
  const auto some_of = [&](const std::vector<double>& all) {
    std::vector<double> some;
    for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
    return some;
  };
  std::vector<std::vector<double>> columns;
  for (const Term& term : terms) columns.push_back(some_of(term.value->values));
  const std::vector<double> y = some_of(total.values);
  auto factors = weights_of(columns, y);
  if (!factors) return {};
  const std::vector<double> made = weighted_sum(columns, *factors);
  for (std::size_t k = 0; k < columns.size(); ++k) {
    double square = 0, errors = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      square += columns[k][i] * columns[k][i];
      errors += std::pow(columns[k][i] * (y[i] - made[i]), 2);
    }
    double& f = (*factors)[k];
    for (const int digits : {1, 2, 3, 6}) {
      const double usual = std::stod(fmt::format("{:.{}g}", f, digits));
      const double rounding = unit_roundoff(DType::float32) * std::abs(usual);
      if (!((std::abs(usual - f) - rounding) * square <= improbable * std::sqrt(errors))) continue;
      f = usual;
      break;
    }
  }
  return factors;
}

// Each term must be seen in the sum: what it moves beyond the roundings proves that it is there.
bool SumsOfTerms::add_up(const SideTensor& total, const Terms& terms, const std::vector<double>& factors) {
  std::vector<double> bits(terms.size(), 0);
  double u = unit_roundoff(total.dtype);
  for (const Term& term : terms) u = std::max(u, unit_roundoff(term.value->dtype));
  const auto factor = [&](std::size_t k) { return factors.empty() ? 1 : factors[k]; };
  for (std::size_t i = 0; i < total.values.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const SideTensor& t = *terms[k].value;
      const std::size_t at = i % t.values.size();
      sum += factor(k) * t.values[at];
      magnitude +=
          std::abs(factor(k)) * (t.magnitude.empty() ? std::abs(t.values[at]) : t.addends * t.magnitude[at]);
    }
    const double allowed = 2 * u * magnitude + min_subnormal(total.dtype);
    if (!(std::abs(sum - total.values[i]) <= allowed)) return false;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const std::vector<double>& values = terms[k].value->values;
      const double size = std::abs(factor(k) * values[i % values.size()]);
      if (size > allowed) bits[k] += std::log2(size / allowed);
    }
  }
  // Each was chosen among so many values.
  double parameters = std::log2(static_cast<double>(most_terms)) * static_cast<double>(terms.size());
  for (std::size_t k = 0; k < terms.size(); ++k) parameters += factor(k) == 1 ? 0 : bits_of_a_number;
  return std::ranges::all_of(bits, [&](double b) { return proves(b, parameters); });
}

}  // namespace assay
