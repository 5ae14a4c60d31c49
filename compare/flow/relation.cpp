#include "assay/compare/flow/relation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/flow/chosen_rows.h"
#include "assay/compare/flow/combine.h"
#include "assay/compare/flow/moves.h"
#include "assay/compare/flow/products_of_parts.h"
#include "assay/compare/flow/whole_rows.h"
#include "assay/dumps/layout/layout.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Any order of n additions in float32, and a product before each.
std::optional<DerivedValue> total_of(const std::vector<std::shared_ptr<const SideTensor>>& sources,
                                     std::size_t size) {
  const std::vector<double>& x = sources.front()->values;
  if (size != 1 || (sources.size() > 1 && sources[1]->values.size() != x.size())) return {};
  DerivedValue e;
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

double DerivedValue::size(std::size_t i) const {
  return magnitude.empty() ? std::abs(values[i]) : magnitude[i];
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

DerivedValue as_expected(const SideTensor& t) {
  DerivedValue e;
  e.values = t.values;
  e.roundoff = is_float(t.dtype) ? unit_roundoff(t.dtype) : 0;
  e.is_exact = t.addends <= 1;
  e.is_added_up = true;
  if (!e.is_exact) {
    e.magnitude = t.magnitude;
    e.terms = t.addends;
    // R - 1 additions with a rounding each, and that of the sum that was put together here.
    for (const double m : t.magnitude) e.error.push_back(t.addends * e.roundoff * m);
  }
  return e;
}

// How often each number below the size is in an index; nothing if another one is.
static std::optional<DerivedValue> counts_of(const SideTensor& index, std::size_t size) {
  DerivedValue e;
  e.values.resize(size, 0);
  e.is_exact = true;
  for (const double v : index.values) {
    if (!(v >= 0 && v < static_cast<double>(size))) return {};
    ++e.values[static_cast<std::size_t>(v)];
  }
  return e;
}

std::optional<DerivedValue> evaluate(const Relation& r, const Shape& shape, const ReadSource& read) {
  const auto size = static_cast<std::size_t>(element_count(shape));
  if (r.kind == Relation::Kind::combine) return evaluate_combine(r, shape, read);
  if (r.kind == Relation::Kind::product) return evaluate_product(r, shape, read);
  if (r.has_whole_rows()) return evaluate_whole_rows(r, shape, read);
  if (r.kind == Relation::Kind::sum) {
    auto terms = terms_of(r, size, read);
    return terms ? sum_of(std::move(*terms)) : std::nullopt;
  }
  std::vector<std::shared_ptr<const SideTensor>> sources;
  for (const Name& name : r.sources) {
    sources.push_back(read(name));
    if (sources.back() == nullptr) return {};
  }
  if (r.kind == Relation::Kind::chosen) {
    sources.back() = index_of_chosen_rows(*sources.front(), *sources.back(), false);
    if (sources.back() == nullptr) return {};
  }
  if (r.kind == Relation::Kind::copy) {
    if (sources.front()->values.size() != size) return {};
    return as_expected(*sources.front());
  }
  if (r.kind == Relation::Kind::total) return total_of(sources, size);
  if (r.kind == Relation::Kind::counts) return counts_of(*sources.front(), size);
  DerivedValue e;
  e.values.resize(size);
  e.is_exact = true;
  std::vector<DerivedValue> parts;
  std::vector<Shape> shapes;
  for (const auto& s : sources) {
    parts.push_back(as_expected(*s));
    shapes.push_back(s->shape);
    e.is_exact = e.is_exact && parts.back().is_exact;
    e.roundoff = std::max(e.roundoff, parts.back().roundoff);
  }
  if (!e.is_exact) {
    e.magnitude.resize(size, 0);
    e.error.resize(size, 0);
  }
  const Map move = [&](std::int64_t to, Moved from) {
    const auto i = static_cast<std::size_t>(to), j = static_cast<std::size_t>(from.from);
    const DerivedValue& part = parts[from.source];
    e.values[i] = part.values[j];
    if (e.is_exact) return;
    e.magnitude[i] = part.size(j);
    e.error[i] = part.of(j);
  };
  const bool fits = r.kind == Relation::Kind::columns
                        ? for_each_column(r, shape, shapes, move)
                        : for_each_row(r, shape, shapes.front(), *sources.back(), move);
  if (!fits) return {};
  return e;
}

std::optional<DerivedValue> adjoint(const Relation& r, std::size_t source, const DerivedValue& gradient,
                                    const Shape& target, const Shape& shape, const ReadSource& read) {
  using Kind = Relation::Kind;
  if (r.kind == Kind::combine) return adjoint_of_combine(r, source, gradient, target, shape, read);
  if (r.kind == Kind::product) return adjoint_of_product(r, source, gradient, target, shape, read);
  if (r.kind == Kind::total || r.kind == Kind::counts) return {};
  if (r.has_whole_rows()) return adjoint_of_whole_rows(r, source, gradient, target, shape, read);
  const auto size = static_cast<std::size_t>(element_count(shape));
  if (r.kind == Kind::sum) {
    auto sum = sum_of_repeated(gradient, size);
    return sum ? std::optional(times(std::move(*sum), r.factor(source))) : std::nullopt;
  }
  if (r.kind == Kind::copy) return gradient.values.size() == size ? std::optional(gradient) : std::nullopt;
  DerivedValue e;
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
    auto index = read(r.sources.back());
    if (r.kind == Kind::chosen && index != nullptr) {
      const auto own = read(r.sources.front());
      index = own == nullptr ? nullptr : index_of_chosen_rows(*own, *index, true);
    }
    fits = index != nullptr && for_each_row(r, target, shape, *index, add);
  }
  if (!fits) return {};
  const bool adds = std::ranges::any_of(terms, [](std::int64_t n) { return n > 1; });
  if (adds || std::ranges::any_of(error, [](double x) { return x > 0; })) {
    e.is_exact = e.is_exact && !adds;
    for (std::size_t i = 0; i < size; ++i)
      error[i] += static_cast<double>(std::max<std::int64_t>(terms[i] - 1, 0)) * e.roundoff * e.magnitude[i];
    e.error = std::move(error);
  }
  return e;
}

std::string module_around(const std::string& module) {
  const auto dot = module.rfind('.');
  return dot == std::string::npos ? "" : module.substr(0, dot);
}

ReadSource reader_at(const SideValues& side, const Identity& of) {
  return [&side, step = of.step,
          micro_batch = of.micro_batch](const Name& name) -> std::shared_ptr<const SideTensor> {
    const LogicalTensor* t = side.find(at(record_of(name), step, micro_batch));
    return t == nullptr ? nullptr : side.read(*t);
  };
}

bool holds(const SideValues& side, const Relation& r, const LogicalTensor& t) {
  const auto tensor = side.read(t);
  const auto made = evaluate(r, tensor->shape, reader_at(side, t.id));
  if (!made) return false;
  const double u = unit_roundoff(tensor->dtype);
  double bits = 0;
  for (std::size_t i = 0; i < tensor->values.size(); ++i) {
    const double allowed =
        made->of(i) + u * (std::abs(made->values[i]) + made->of(i)) + min_subnormal(tensor->dtype);
    if (!(std::abs(made->values[i] - tensor->values[i]) <= allowed)) return false;
    if (made->size(i) > allowed) bits += std::log2(made->size(i) / allowed);
  }
  return proves(bits, 0);
}

std::string describe(const Relation& r, std::int64_t step, std::int64_t micro_batch) {
  constexpr std::size_t most = 4;
  std::string names;
  for (std::size_t s = 0; s < std::min(r.sources.size(), most); ++s)
    names += (s == 0                      ? ""
              : s + 1 == r.sources.size() ? " and "
                                          : ", ") +
             (r.factor(s) == 1 ? "" : fmt::format("{:.6g} times ", r.factor(s))) +
             to_string(at(r.sources[s], step, micro_batch));
  if (r.sources.size() > most) names += fmt::format(" and {} more", r.sources.size() - most);
  switch (r.kind) {
    case Relation::Kind::copy:
      return names;
    case Relation::Kind::columns:
      return "columns of " + names;
    case Relation::Kind::rows:
      if (r.choice == Relation::each_number) return "the rows by number of " + names;
      return r.choice == Relation::every_choice ? "the rows of one choice after the other of " + names
                                                : fmt::format("the rows of choice {} of {}", r.choice, names);
    case Relation::Kind::chosen:
      return "rows of " + to_string(at(r.sources.front(), step, micro_batch));
    case Relation::Kind::scattered:
      return "the sums of the rows by number of " + names;
    case Relation::Kind::joined:
      return "one behind the other, " + names;
    case Relation::Kind::stretch:
      return "the rows behind those before of " + to_string(at(r.sources.front(), step, micro_batch));
    case Relation::Kind::sum:
      return (r.sources.size() > 1 ? "the sum of " : "") + names;
    case Relation::Kind::product:
      return "the product of parts of " + names;
    case Relation::Kind::total:
      return r.sources.size() > 1 ? "the sum of the products of " + names
                                  : "the sum of all elements of " + names;
    case Relation::Kind::counts:
      return "the counts of " + names;
    case Relation::Kind::combine:
      return "the weighted rows of " + names;
  }
  return names;
}

}  // namespace assay
