#include "assay/compare/flow/products_of_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "assay/compare/flow/found_operators.h"
#include "assay/dumps/layout/layout.h"

namespace assay {
namespace {

constexpr std::size_t most_sources = 8;  // the latest, as a layer makes them
constexpr std::size_t most_parts = 8;    // of a value: a projection makes no more side by side
constexpr std::size_t most_factors = 1 << 6;
constexpr std::size_t first_elements = 16;  // that most products differ in

bool has_place(const Relation::Part& part, const Shape& target, const Shape& source) {
  if (part.order.size() != target.size() || source.size() != target.size()) return false;
  for (std::size_t d = 0; d < target.size(); ++d) {
    const std::int64_t extent = source[static_cast<std::size_t>(part.order[d])];
    if (d == part.along ? part.from + target[d] > extent : target[d] != extent) return false;
  }
  return true;
}

// Where the first `count` elements of a target lie in the source.
std::vector<std::int64_t> places_in(const Relation::Part& part, const Shape& target, const Shape& source,
                                    std::size_t count) {
  const Shape strides = dense_strides(source);
  Shape index(target.size(), 0);
  const auto stride = [&](std::size_t d) { return strides[static_cast<std::size_t>(part.order[d])]; };
  std::int64_t p = target.empty() ? 0 : part.from * stride(part.along);
  std::vector<std::int64_t> places(count);
  for (std::int64_t& out : places) {
    out = p;
    for (std::size_t d = target.size(); d-- > 0;) {
      p += stride(d);
      if (++index[d] < target[d]) break;
      p -= stride(d) * target[d];
      index[d] = 0;
    }
  }
  return places;
}

// All that one value may give: as it lies or with its last two dimensions exchanged, whole, one of several of
// that size side by side, or the beginning or the end of what is a little longer.
std::vector<Relation::Part> parts_for(const Shape& source, const Shape& target) {
  std::vector<Relation::Part> parts;
  const std::size_t dims = target.size();
  if (source.size() != dims || dims < 2) return parts;
  Shape order(dims);
  std::iota(order.begin(), order.end(), 0);
  for (const bool is_exchanged : {false, true}) {
    if (is_exchanged) std::swap(order[dims - 1], order[dims - 2]);
    std::vector<std::size_t> longer;
    for (std::size_t d = 0; d < dims; ++d) {
      if (source[static_cast<std::size_t>(order[d])] != target[d]) longer.push_back(d);
    }
    if (longer.size() > 1) continue;
    const std::size_t along = longer.empty() ? 0 : longer.front();
    const std::int64_t own = target[along], all = source[static_cast<std::size_t>(order[along])];
    if (own < 1 || all < own || all > static_cast<std::int64_t>(most_parts) * own) continue;
    const std::int64_t step = all % own == 0 ? own : all - own;
    for (std::int64_t from = 0; from + own <= all; from += step) parts.push_back({order, along, from});
  }
  return parts;
}

}  // namespace

std::optional<DerivedValue> evaluate_product(const Relation& r, const Shape& shape, const ReadSource& read) {
  const auto size = static_cast<std::size_t>(element_count(shape));
  DerivedValue e;
  e.values.resize(size, 1);
  e.magnitude.resize(size, 1);
  e.error.resize(size, 0);
  for (std::size_t s = 0; s < r.sources.size(); ++s) {
    const auto source = read(r.sources[s]);
    if (source == nullptr || !has_place(r.parts[s], shape, source->shape)) return {};
    const DerivedValue factor = as_expected(*source);
    const std::vector<std::int64_t> places = places_in(r.parts[s], shape, source->shape, size);
    e.roundoff = std::max(e.roundoff, factor.roundoff);
    for (std::size_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(places[i]);
      e.error[i] = e.error[i] * (factor.size(at) + factor.of(at)) + e.magnitude[i] * factor.of(at);
      e.values[i] *= factor.values[at];
      e.magnitude[i] *= factor.size(at);
    }
  }
  return e;
}

std::optional<DerivedValue> adjoint_of_product(const Relation& r, std::size_t source,
                                               const DerivedValue& gradient, const Shape& target,
                                               const Shape& shape, const ReadSource& read) {
  const auto size = static_cast<std::size_t>(element_count(target));
  if (!has_place(r.parts[source], target, shape) || gradient.values.size() != size) return {};
  const std::size_t other = 1 - source;
  const auto factor = read(r.sources[other]);
  if (factor == nullptr || !has_place(r.parts[other], target, factor->shape)) return {};
  const DerivedValue by = as_expected(*factor);
  const std::vector<std::int64_t> to = places_in(r.parts[source], target, shape, size),
                                  from = places_in(r.parts[other], target, factor->shape, size);
  DerivedValue e;
  e.roundoff = std::max(gradient.roundoff, by.roundoff);
  for (std::vector<double>* all : {&e.values, &e.magnitude, &e.error})
    all->resize(static_cast<std::size_t>(element_count(shape)), 0);
  for (std::size_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(to[i]), j = static_cast<std::size_t>(from[i]);
    // A gradient that was computed is stored before it is multiplied.
    const double stored = gradient.is_exact ? 0 : gradient.roundoff * gradient.size(i),
                 error = gradient.of(i) + stored;
    e.values[at] = gradient.values[i] * by.values[j];
    e.magnitude[at] = gradient.size(i) * by.size(j);
    e.error[at] = error * (by.size(j) + by.of(j)) + gradient.size(i) * by.of(j);
  }
  return e;
}

std::vector<ProductsOfParts::Factor> ProductsOfParts::factors(const LogicalTensor& t) const {
  std::vector<Factor> all;
  std::size_t values = 0;
  const std::size_t count = std::min(first_elements, static_cast<std::size_t>(element_count(t.shape)));
  candidates_.for_each_near(
      t, [&](const EarlierValues::Kind& kind) { return !parts_for(kind.shape, t.shape).empty(); },
      [&](std::size_t c) {
        const auto value = side_.read(*candidates_[c].tensor);
        for (const Relation::Part& part : parts_for(value->shape, t.shape)) {
          Factor f{c, part, {}, value->shape == t.shape && std::ranges::is_sorted(part.order)};
          for (const std::int64_t place : places_in(part, t.shape, value->shape, count))
            f.begin.push_back(value->values[static_cast<std::size_t>(place)]);
          all.push_back(std::move(f));
        }
        return ++values < most_sources && all.size() < most_factors;
      });
  return all;
}

std::optional<Relation> ProductsOfParts::of_parts(const LogicalTensor& t, const SideTensor& tensor) const {
  if (t.shape.size() < 2 || tensor.values.empty() ||
      !shows_call(tensor, static_cast<double>(most_factors * most_factors)))
    return {};
  const std::vector<Factor> all = factors(t);
  const double u = unit_roundoff(tensor.dtype);
  const auto begins = [&](const Factor& a, const Factor& b) {
    for (std::size_t i = 0; i < a.begin.size(); ++i) {
      const double product = a.begin[i] * b.begin[i];
      if (!(std::abs(product - tensor.values[i]) <= u * std::abs(product) + min_subnormal(tensor.dtype)))
        return false;
    }
    return true;
  };
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if ((all[a].is_whole && all[b].is_whole) || !begins(all[a], all[b])) continue;
      Relation r{.kind = Relation::Kind::product,
                 .sources = {candidates_[all[a].candidate].name, candidates_[all[b].candidate].name}};
      r.parts = {all[a].part, all[b].part};
      if (holds(side_, r, t)) return r;
    }
  }
  return {};
}

}  // namespace assay
