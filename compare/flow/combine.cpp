#include "assay/compare/flow/combine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "assay/compare/flow/moves.h"

namespace assay {
namespace {

// For each token and choice: which expert, and which of its rows.
struct Met {
  std::int64_t token = 0, k = 0;
  std::size_t expert = 0;
  std::int64_t row = 0;
};
std::optional<std::vector<Met>> meetings(const Relation& r, const SideTensor& index,
                                         const std::vector<std::shared_ptr<const SideTensor>>& experts,
                                         std::int64_t width) {
  if (index.shape.empty()) return {};
  const std::int64_t k = index.shape.back(), tokens = std::ssize(index.values) / std::max<std::int64_t>(k, 1);
  std::map<std::int64_t, std::size_t> of_choice;
  if (r.choices == std::vector{Relation::every_choice}) {
    const std::vector<std::int64_t> places = places_by_choice(index);
    if (experts[0] == nullptr || std::ssize(experts[0]->values) != std::ssize(places) * width) return {};
    std::vector<Met> met;
    for (std::size_t row = 0; row < places.size(); ++row)
      met.push_back({places[row] / k, places[row] % k, 0, static_cast<std::int64_t>(row)});
    return met;
  }
  for (std::size_t e = 0; e < r.choices.size(); ++e) of_choice[r.choices[e]] = e;
  std::vector<std::int64_t> next(r.choices.size(), 0);
  std::vector<Met> met;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < k; ++j) {
      const auto e = of_choice.find(std::llround(index.values[static_cast<std::size_t>(t * k + j)]));
      if (e == of_choice.end() || experts[e->second] == nullptr) return {};
      met.push_back({t, j, e->second, next[e->second]++});
    }
  }
  for (std::size_t e = 0; e < experts.size(); ++e) {
    if (experts[e] != nullptr && std::ssize(experts[e]->values) != next[e] * width) return {};
  }
  return met;
}

struct Combined {
  std::shared_ptr<const SideTensor> index, weights;
  std::vector<std::shared_ptr<const SideTensor>> experts;
  std::int64_t k = 0, width = 0;
  std::vector<Met> met;
  double weight(const Met& m) const {
    return weights == nullptr ? 1 : weights->values[static_cast<std::size_t>(m.token * k + m.k)];
  }
};
std::optional<Combined> combined(const Relation& r, const Shape& shape, const ReadSource& read) {
  Combined c;
  c.index = read(r.sources[0]);
  c.weights = r.is_weighted ? read(r.sources[1]) : nullptr;
  if (c.index == nullptr || c.index->shape.empty() || shape.empty() ||
      (r.is_weighted && (c.weights == nullptr || c.weights->values.size() != c.index->values.size())))
    return {};
  c.k = c.index->shape.back();
  c.width = shape.back();
  for (std::size_t s = 2; s < r.sources.size(); ++s) c.experts.push_back(read(r.sources[s]));
  auto met = meetings(r, *c.index, c.experts, c.width);
  if (!met || element_count(shape) * c.k != std::ssize(c.index->values) * c.width) return {};
  c.met = std::move(*met);
  return c;
}

}  // namespace

std::optional<DerivedValue> evaluate_combine(const Relation& r, const Shape& shape, const ReadSource& read) {
  const auto c = combined(r, shape, read);
  if (!c) return {};
  DerivedValue e;
  e.values.resize(static_cast<std::size_t>(element_count(shape)), 0);
  e.magnitude.resize(e.values.size(), 0);
  e.error.resize(e.values.size(), 0);
  double addends = 1;
  for (const Met& m : c->met) {
    const SideTensor& y = *c->experts[m.expert];
    const double w = c->weight(m);
    e.roundoff = std::max(e.roundoff, unit_roundoff(y.dtype));
    addends = std::max(addends, y.addends);
    for (std::int64_t j = 0; j < c->width; ++j) {
      const auto i = static_cast<std::size_t>(m.token * c->width + j),
                 at = static_cast<std::size_t>(m.row * c->width + j);
      e.values[i] += w * y.values[at];
      e.magnitude[i] += std::abs(w) * (y.magnitude.empty() ? std::abs(y.values[at]) : y.magnitude[at]);
    }
  }
  // Each product and each addition may be stored: k of the one, k - 1 of the other, on every rank.
  const double roundings = 2 * static_cast<double>(c->k) - 1 + (addends - 1);
  for (std::size_t i = 0; i < e.error.size(); ++i) e.error[i] = roundings * e.roundoff * e.magnitude[i];
  return e;
}

std::optional<DerivedValue> adjoint_of_combine(const Relation& r, std::size_t source,
                                               const DerivedValue& gradient, const Shape& target,
                                               const Shape& shape, const ReadSource& read) {
  const auto c = combined(r, target, read);
  if (!c || source == 0) return {};
  DerivedValue e;
  e.roundoff = gradient.roundoff;
  e.values.resize(static_cast<std::size_t>(element_count(shape)), 0);
  e.magnitude.resize(e.values.size(), 0);
  e.error.resize(e.values.size(), 0);
  for (const Met& m : c->met) {
    const SideTensor& y = *c->experts[m.expert];
    if (source == 1) {
      const auto i = static_cast<std::size_t>(m.token * c->k + m.k);
      for (std::int64_t j = 0; j < c->width; ++j) {
        const auto g = static_cast<std::size_t>(m.token * c->width + j),
                   at = static_cast<std::size_t>(m.row * c->width + j);
        const double size = y.magnitude.empty() ? std::abs(y.values[at]) : y.magnitude[at];
        e.values[i] += gradient.values[g] * y.values[at];
        e.magnitude[i] += gradient.size(g) * size;
        e.error[i] += gradient.of(g) * size;
      }
      e.roundoff = std::max(e.roundoff, unit_roundoff(y.dtype));
    } else if (m.expert == source - 2) {
      const double w = c->weight(m);
      for (std::int64_t j = 0; j < c->width; ++j) {
        const auto i = static_cast<std::size_t>(m.row * c->width + j),
                   g = static_cast<std::size_t>(m.token * c->width + j);
        e.values[i] = w * gradient.values[g];
        e.magnitude[i] = std::abs(w) * gradient.size(g);
        e.error[i] = std::abs(w) * gradient.of(g);
      }
    }
  }
  // One product, stored; of weights a sum over the row: pairwise or in blocks, no worse than one after the
  // other in float32 of products that were stored.
  const double sums = source == 1 ? static_cast<double>(c->width) * unit_roundoff(DType::float32) : 0;
  for (std::size_t i = 0; i < e.error.size(); ++i) e.error[i] += (e.roundoff + sums) * e.magnitude[i];
  return e;
}

}  // namespace assay
