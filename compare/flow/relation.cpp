#include "assay/compare/flow/relation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "assay/dumps/layout/layout.h"

namespace assay {
namespace {

void allow(Expected& e, std::size_t i, double error) {
  if (e.error.empty()) e.error.resize(e.values.size(), 0);
  e.error[i] += error;
}

// Rows of tokens that an index [tokens, k] assigns to each expert, in the order of tokens.
std::vector<std::int64_t> rows_of(const SideTensor& index, std::int64_t choice, std::int64_t tokens) {
  std::vector<std::int64_t> rows;
  if (tokens == 0 || index.values.size() % static_cast<std::size_t>(tokens) != 0) return rows;
  const std::size_t k = index.values.size() / static_cast<std::size_t>(tokens);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto begin = index.values.begin() + t * static_cast<std::int64_t>(k);
    if (std::find(begin, begin + static_cast<std::int64_t>(k), static_cast<double>(choice)) !=
        begin + static_cast<std::int64_t>(k))
      rows.push_back(t);
  }
  return rows;
}

// A relation that moves elements: each element of the target is that of a source. Adjoint: each of the source
// is the sum over its places in the target.
struct Moved {
  std::size_t source = 0;
  std::int64_t from = 0;
};
using Map = std::function<void(std::int64_t target, Moved)>;

// Calls f for every element; false if sizes do not fit.
bool for_each_column(const Relation& r, const Shape& shape, const std::vector<Shape>& sources, const Map& f) {
  const auto rows = rows_in(shape, r.table);
  const std::int64_t width = std::ssize(r.columns);
  if (!rows || element_count(shape) != *rows * width) return false;
  std::vector<std::vector<std::int64_t>> from;
  std::vector<std::int64_t> widths;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (rows_in(sources[s], r.tables[s]) != rows || *rows == 0) return false;
    from.push_back(positions(sources[s], r.tables[s]));
    widths.push_back(element_count(sources[s]) / *rows);
  }
  for (const Relation::Column& c : r.columns) {
    if (c.at >= widths[c.source]) return false;
  }
  const std::vector<std::int64_t> to = positions(shape, r.table);
  for (std::int64_t row = 0; row < *rows; ++row) {
    for (std::int64_t j = 0; j < width; ++j) {
      const Relation::Column& c = r.columns[static_cast<std::size_t>(j)];
      f(to[static_cast<std::size_t>(row * width + j)],
        {c.source, from[c.source][static_cast<std::size_t>(row * widths[c.source] + c.at)]});
    }
  }
  return true;
}

bool for_each_row(const Relation& r, const Shape& shape, const Shape& source, const SideTensor& index,
                  const Map& f) {
  if (shape.empty() || source.empty() || shape.back() != source.back() || index.shape.empty()) return false;
  const std::int64_t width = source.back(), tokens = element_count(source) / std::max<std::int64_t>(width, 1);
  const std::vector<std::int64_t> rows = rows_of(index, r.choice, tokens);
  if (element_count(shape) != std::ssize(rows) * width) return false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t j = 0; j < width; ++j)
      f(static_cast<std::int64_t>(i) * width + j, {0, rows[i] * width + j});
  }
  return true;
}

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

std::optional<Expected> evaluate_combine(const Relation& r, const Shape& shape, const ReadSource& read) {
  const auto c = combined(r, shape, read);
  if (!c) return {};
  Expected e;
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

std::optional<Expected> adjoint_of_combine(const Relation& r, std::size_t source, const Expected& gradient,
                                           const Shape& target, const Shape& shape, const ReadSource& read) {
  const auto c = combined(r, target, read);
  if (!c || source == 0) return {};
  Expected e;
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

// Any order of n additions in float32, and a product before each.
std::optional<Expected> total_of(const std::vector<std::shared_ptr<const SideTensor>>& sources,
                                 std::size_t size) {
  const std::vector<double>& x = sources.front()->values;
  if (size != 1 || (sources.size() > 1 && sources[1]->values.size() != x.size())) return {};
  Expected e;
  e.roundoff = unit_roundoff(DType::float32);
  double sum = 0, magnitude = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double term = sources.size() > 1 ? x[i] * sources[1]->values[i] : x[i];
    sum += term;
    magnitude += std::abs(term);
  }
  e.values = {sum};
  e.magnitude = {magnitude};
  e.error = {static_cast<double>(x.size()) * e.roundoff * magnitude};
  return e;
}

}  // namespace

std::optional<std::int64_t> rows_in(const Shape& shape, const Relation::Table& table) {
  if (table.order.size() != shape.size() || table.lead > shape.size()) return {};
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < table.lead; ++d) rows *= shape[static_cast<std::size_t>(table.order[d])];
  return rows;
}

std::vector<std::int64_t> positions(const Shape& shape, const Relation::Table& table) {
  const Shape strides = dense_strides(shape);
  std::vector<std::int64_t> result(static_cast<std::size_t>(element_count(shape)));
  Shape index(shape.size(), 0);
  std::int64_t p = 0;
  for (std::int64_t& out : result) {
    out = p;
    for (std::size_t i = table.order.size(); i-- > 0;) {
      const auto d = static_cast<std::size_t>(table.order[i]);
      p += strides[d];
      if (++index[d] < shape[d]) break;
      p -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return result;
}

double Expected::size(std::size_t i) const {
  return magnitude.empty() ? std::abs(values[i]) : magnitude[i];
}

Name name_of(const Identity& id) {
  Name name = id;
  name.step = 0;
  if (name.micro_batch > 0) name.micro_batch = 0;
  return name;
}

Name record_of(const Name& value) {
  Name record = value;
  if (record.slot == "value") record.slot = "input";
  return record;
}

Identity at(const Name& name, std::int64_t step, std::int64_t micro_batch) {
  Identity id = name;
  id.step = step;
  if (id.micro_batch >= 0) id.micro_batch = micro_batch;
  return id;
}

Expected as_expected(const SideTensor& t) {
  Expected e;
  e.shape = t.shape;
  e.values = t.values;
  e.roundoff = is_float(t.dtype) ? unit_roundoff(t.dtype) : 0;
  e.is_exact = t.addends <= 1;
  if (!e.is_exact) {
    e.magnitude = t.magnitude;
    e.terms = t.addends;
    // R - 1 additions with a rounding each, and that of the sum that was put together here.
    for (const double m : t.magnitude) e.error.push_back(t.addends * e.roundoff * m);
  }
  return e;
}

std::optional<Expected> sum_of(std::vector<Expected> terms) {
  if (terms.empty()) return {};
  if (terms.size() == 1) return std::move(terms.front());
  Expected sum;
  const std::size_t size = terms.front().values.size();
  sum.values.resize(size, 0);
  sum.magnitude.resize(size, 0);
  sum.error.resize(size, 0);
  sum.terms = 0;
  for (const Expected& t : terms) {
    if (t.values.size() != size) return {};
    sum.terms += t.terms;
    sum.roundoff = std::max(sum.roundoff, t.roundoff);
  }
  for (const Expected& t : terms) {
    for (std::size_t i = 0; i < size; ++i) {
      sum.values[i] += t.values[i];
      sum.magnitude[i] += t.size(i);
      // A term that was computed is stored before it is added.
      sum.error[i] += t.of(i) + (t.is_exact ? 0 : sum.roundoff * t.size(i));
    }
  }
  // All additions but the last are stored in between; that of the last is the target's own.
  const auto additions = static_cast<double>(terms.size() - 2);
  const double arithmetic = static_cast<double>(terms.size()) * unit_roundoff(DType::float32);
  for (std::size_t i = 0; i < size; ++i)
    sum.error[i] += (additions * sum.roundoff + std::min(arithmetic, sum.roundoff)) * sum.magnitude[i];
  sum.shape = terms.front().shape;
  return sum;
}

std::optional<Expected> evaluate(const Relation& r, const Shape& shape, const ReadSource& read) {
  const auto size = static_cast<std::size_t>(element_count(shape));
  if (r.kind == Relation::Kind::combine) return evaluate_combine(r, shape, read);
  std::vector<std::shared_ptr<const SideTensor>> sources;
  for (const Name& name : r.sources) {
    sources.push_back(read(name));
    if (sources.back() == nullptr) return {};
  }
  if (r.kind == Relation::Kind::copy || r.kind == Relation::Kind::scaled) {
    Expected e = as_expected(*sources.front());
    if (e.values.size() != size) return {};
    if (r.kind == Relation::Kind::scaled) {
      e.is_exact = false;
      for (std::size_t i = 0; i < size; ++i) {
        const double before = e.of(i);
        e.values[i] *= r.factor;
        if (!e.magnitude.empty()) e.magnitude[i] *= std::abs(r.factor);
        if (before > 0) e.error[i] = before * std::abs(r.factor);
        // The factor was fitted, and may have been rounded to the dtype of the arithmetic.
        allow(e, i, 2 * unit_roundoff(DType::float32) * e.size(i));
      }
    }
    return e;
  }
  if (r.kind == Relation::Kind::total) return total_of(sources, size);
  if (r.kind == Relation::Kind::sum) {
    std::vector<Expected> terms;
    for (const auto& s : sources) terms.push_back(as_expected(*s));
    auto sum = sum_of(std::move(terms));
    if (!sum || sum->values.size() != size) return {};
    return sum;
  }
  Expected e;
  e.values.resize(size);
  e.is_exact = true;
  std::vector<Expected> parts;
  std::vector<Shape> shapes;
  for (const auto& s : sources) {
    parts.push_back(as_expected(*s));
    shapes.push_back(s->shape);
    e.is_exact = e.is_exact && parts.back().is_exact;
    e.roundoff = std::max(e.roundoff, parts.back().roundoff);
  }
  if (!e.is_exact) e.magnitude.resize(size, 0);
  const Map move = [&](std::int64_t to, Moved from) {
    const auto i = static_cast<std::size_t>(to), j = static_cast<std::size_t>(from.from);
    const Expected& part = parts[from.source];
    e.values[i] = part.values[j];
    if (e.is_exact) return;
    e.magnitude[i] = part.size(j);
    if (part.of(j) > 0) allow(e, i, part.of(j));
  };
  const bool fits = r.kind == Relation::Kind::columns
                        ? for_each_column(r, shape, shapes, move)
                        : for_each_row(r, shape, shapes.front(), *sources.back(), move);
  if (!fits) return {};
  return e;
}

std::optional<Expected> adjoint(const Relation& r, std::size_t source, const Expected& gradient,
                                const Shape& target, const Shape& shape, const ReadSource& read) {
  using Kind = Relation::Kind;
  if (r.kind == Kind::combine) return adjoint_of_combine(r, source, gradient, target, shape, read);
  if (r.kind == Kind::total) return {};
  const auto size = static_cast<std::size_t>(element_count(shape));
  if (r.kind == Kind::copy || r.kind == Kind::sum || r.kind == Kind::scaled) {
    if (gradient.values.size() != size) return {};
    Expected e = gradient;
    if (r.kind == Kind::scaled) {
      e.is_exact = false;
      for (std::size_t i = 0; i < size; ++i) {
        e.values[i] *= r.factor;
        if (!e.magnitude.empty()) e.magnitude[i] *= std::abs(r.factor);
        const double before = e.of(i);
        if (before > 0) e.error[i] = before * std::abs(r.factor);
        allow(e, i, 2 * unit_roundoff(DType::float32) * e.size(i));
      }
    }
    return e;
  }
  Expected e;
  e.roundoff = gradient.roundoff;
  e.is_exact = gradient.is_exact;
  e.values.resize(size, 0);
  e.magnitude.resize(size, 0);
  std::vector<double> error(size, 0);
  std::vector<std::int64_t> terms(size, 0);
  const Map add = [&](std::int64_t to, Moved from) {
    if (from.source != (r.kind == Kind::columns ? source : 0)) return;
    const auto i = static_cast<std::size_t>(from.from), j = static_cast<std::size_t>(to);
    e.values[i] += gradient.values[j];
    e.magnitude[i] += gradient.size(j);
    error[i] += gradient.of(j);
    ++terms[i];
  };
  bool fits = false;
  if (r.kind == Kind::columns) {
    std::vector<Shape> shapes;
    for (std::size_t s = 0; s < r.sources.size(); ++s) {
      const auto t = s == source ? nullptr : read(r.sources[s]);
      if (s != source && t == nullptr) return {};
      shapes.push_back(s == source ? shape : t->shape);
    }
    fits = for_each_column(r, target, shapes, add);
  } else if (source == 0) {
    const auto index = read(r.sources.back());
    fits = index != nullptr && for_each_row(r, target, shape, *index, add);
  }
  if (!fits) return {};
  const std::int64_t most = *std::ranges::max_element(terms);
  if (most > 1 || std::ranges::any_of(error, [](double x) { return x > 0; })) {
    if (most > 1) e.is_exact = false;
    for (std::size_t i = 0; i < size; ++i)
      error[i] += static_cast<double>(std::max<std::int64_t>(terms[i] - 1, 0)) * e.roundoff * e.magnitude[i];
    e.error = std::move(error);
  }
  return e;
}

std::string describe(const Relation& r, std::int64_t step, std::int64_t micro_batch) {
  constexpr std::size_t most = 4;
  std::string names;
  for (std::size_t s = 0; s < std::min(r.sources.size(), most); ++s)
    names += (s == 0                      ? ""
              : s + 1 == r.sources.size() ? " and "
                                          : ", ") +
             to_string(at(r.sources[s], step, micro_batch));
  if (r.sources.size() > most) names += fmt::format(" and {} more", r.sources.size() - most);
  switch (r.kind) {
    case Relation::Kind::copy:
      return names;
    case Relation::Kind::columns:
      return "columns of " + names;
    case Relation::Kind::rows:
      return fmt::format("the rows of choice {} of {}", r.choice, names);
    case Relation::Kind::sum:
      return "the sum of " + names;
    case Relation::Kind::scaled:
      return fmt::format("{:.6g} times {}", r.factor, names);
    case Relation::Kind::total:
      return r.sources.size() > 1 ? "the sum of the products of " + names
                                  : "the sum of all elements of " + names;
    case Relation::Kind::combine:
      return "the weighted rows of " + names;
  }
  return names;
}

}  // namespace assay
