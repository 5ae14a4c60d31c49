#include "assay/compare/flow/sums_of_terms.h"

#include <algorithm>
#include <cmath>

#include "assay/golden/evidence.h"

namespace assay {
namespace {

bool is_as_large(const LogicalTensor& c, const LogicalTensor& t) {
  return element_count(c.shape) == element_count(t.shape);
}
// Several rows of its width.
bool is_repeatable(const LogicalTensor& c, const LogicalTensor& t) {
  const std::int64_t size = element_count(c.shape);
  return c.shape.size() >= 2 && !t.shape.empty() && c.shape.back() == t.shape.back() && size > 0 &&
         size < element_count(t.shape) && element_count(t.shape) % size == 0;
}

}  // namespace

std::optional<Relation> SumsOfTerms::of_terms(const LogicalTensor& t, const SideTensor& tensor) const {
  const Terms own = nearest(t, [&](const LogicalTensor& c) { return is_as_large(c, t); });
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
  const Terms repeated = nearest(t, [&](const LogicalTensor& c) { return is_repeatable(c, t); });
  for (const Term& a : own) {
    for (const Term& b : repeated) {
      if (auto r = sum(tensor, {a, b})) return r;
    }
  }
  return {};
}

SumsOfTerms::Terms SumsOfTerms::nearest(const LogicalTensor& t,
                                        const std::function<bool(const LogicalTensor&)>& fits) const {
  Terms terms;
  for (const std::size_t c : candidates_.near(t, fits)) {
    if (terms.size() == most_terms) break;
    terms.push_back({c, side_.read(*candidates_[c].tensor)});
  }
  return terms;
}
std::optional<Relation> SumsOfTerms::sum(const SideTensor& total, const Terms& terms) const {
  if (!add_up(total, terms)) return {};
  Relation r{.kind = Relation::Kind::sum};
  for (const Term& term : terms) r.sources.push_back(candidates_[term.candidate].name);
  return r;
}

// Each term must be seen in the sum: what it moves beyond the roundings proves that it is there.
bool SumsOfTerms::add_up(const SideTensor& total, const Terms& terms) {
  std::vector<double> bits(terms.size(), 0);
  double u = unit_roundoff(total.dtype);
  for (const Term& term : terms) u = std::max(u, unit_roundoff(term.value->dtype));
  for (std::size_t i = 0; i < total.values.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (const Term& term : terms) {
      const SideTensor& t = *term.value;
      const std::size_t at = i % t.values.size();
      sum += t.values[at];
      magnitude += t.magnitude.empty() ? std::abs(t.values[at]) : t.addends * t.magnitude[at];
    }
    const double allowed = 2 * u * magnitude + min_subnormal(total.dtype);
    if (!(std::abs(sum - total.values[i]) <= allowed)) return false;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      const std::vector<double>& values = terms[k].value->values;
      const double size = std::abs(values[i % values.size()]);
      if (size > allowed) bits[k] += std::log2(size / allowed);
    }
  }
  // Each was chosen among so many values.
  const double parameters = std::log2(static_cast<double>(most_terms)) * static_cast<double>(terms.size());
  return std::ranges::all_of(bits, [&](double b) { return proves(b, parameters); });
}

}  // namespace assay
