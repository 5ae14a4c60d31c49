#include "assay/compare/flow/earlier_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "assay/compare/flow/gradient_names.h"
#include "assay/golden/parallel.h"

namespace assay {

bool is_within(std::string_view module, std::string_view scope) {
  return scope.empty() ||
         (module.size() > scope.size() && module.starts_with(scope) && module[scope.size()] == '.');
}

// splitmix64: Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195.
EarlierValues::Hash EarlierValues::mixed(Hash h, double v) {
  h += 0x9e3779b97f4a7c15 + std::bit_cast<Hash>(v == 0 ? 0.0 : v);
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

void EarlierValues::clear() {
  candidates_.clear();
  by_scope_.clear();
  kinds_.clear();
  outputs_.clear();
  tables_.clear();
  whole_.clear();
  columns_.clear();
  rows_.clear();
}

void EarlierValues::add(const Name& name, const LogicalTensor& t, std::string scope, bool is_inner) {
  const auto tensor = side_.read(t);
  const std::size_t at = candidates_.size();
  Kind kind{t.shape, name.arg, ""};
  if (name.slot == "output") {
    outputs_.emplace(&t, at);
    if (const auto made_by = calls_.producers(t); made_by.size() == 1)
      kind.result_of = made_by.front().output;
  }
  const auto of_kind = by_scope_[scope].try_emplace(std::move(kind)).first;
  of_kind->second.push_back(at);
  kinds_.push_back(&of_kind->first);
  candidates_.push_back({name, &t, std::move(scope), is_inner, hash_of(tensor->values)});
  if (const auto hash = candidates_.back().hash) whole_[*hash].push_back({at, 0});
  // As it is after a cast.
  for (const DType narrow : dtypes_) {
    if (unit_roundoff(narrow) <= unit_roundoff(tensor->dtype)) continue;
    std::vector<double> values = tensor->values;
    for (double& v : values) v = round_to(narrow, v);
    if (const auto hash = hash_of(values)) whole_[*hash].push_back({at, 0});
  }
  for (const Relation::Table& table : tables_of(tensor->shape, false)) add_columns(at, *tensor, table);
  if (!t.shape.empty()) add_columns(at, *tensor, table_of_rows(t.shape), true);
  if (tensor->shape.size() >= 2) {
    const std::int64_t width = tensor->shape.back();
    std::vector<Hash> hashes(width > 0 ? tensor->values.size() / static_cast<std::size_t>(width) : 0);
    each_in_parallel(std::ssize(hashes), grain_of(width),
                     [&](std::int64_t r) { hashes[static_cast<std::size_t>(r)] = row_hash(*tensor, r); });
    for (std::size_t r = 0; r < hashes.size(); ++r)
      rows_[tensor->shape.back()][hashes[r]].push_back({at, static_cast<std::int64_t>(r)});
  }
}

void EarlierValues::add_parameter(const Name& name, const LogicalTensor& t) {
  if (t.shape.empty()) return;
  static const Kind none = {};  // it is no argument
  kinds_.push_back(&none);
  candidates_.push_back({name, &t, name.module});
  add_columns(candidates_.size() - 1, *side_.read(t), table_of_rows(t.shape), true);
}

EarlierValues::Hash EarlierValues::row_hash(const SideTensor& t, std::int64_t row) {
  const std::int64_t width = t.shape.back();
  Hash h = 0;
  for (std::int64_t j = 0; j < width; ++j) h = mixed(h, t.values[static_cast<std::size_t>(row * width + j)]);
  return h;
}

// One number, or the same number everywhere (zeros, ones), does not show which value it is. Within a module
// a number that is no integer does, as far as it is the same in all micro-batches.
std::optional<EarlierValues::Hash> EarlierValues::hash_of(const std::vector<double>& values) {
  if (values.empty() || (values.size() == 1 && values.front() == std::round(values.front()))) return {};
  if (values.size() == 1) return mixed(1, values.front());
  Hash h = values.size();
  bool is_uniform = true;
  for (const double v : values) {
    h = mixed(h, v);
    is_uniform = is_uniform && v == values.front();
  }
  return is_uniform ? std::nullopt : std::optional(h);
}

// As it lies, and with its dimensions but the last in any order ([b, h, s, d] is [s, b, h, d] to who counts
// tokens along the sequence first); of five, two neighbours exchanged. The first one or more count tokens. An
// image has its channels before its places.
std::vector<Relation::Table> EarlierValues::tables_of(const Shape& shape, bool or_transposed) {
  std::vector<Relation::Table> tables;
  const std::size_t dims = shape.size();
  if (dims < 2 || dims > 5) return tables;
  std::vector<Shape> orders(1);
  for (std::size_t d = 0; d < dims; ++d) orders.front().push_back(static_cast<std::int64_t>(d));
  if (dims < 5) {
    for (Shape order = orders.front(); std::next_permutation(order.begin(), order.end() - 1);)
      orders.push_back(order);
    Shape order = orders.front();
    std::swap(order[dims - 2], order[dims - 1]);
    do {
      if (or_transposed) orders.push_back(order);
    } while (std::next_permutation(order.begin(), order.end() - 1));
    if (or_transposed && dims == 4) orders.push_back({0, 2, 3, 1});
  } else {
    for (std::size_t d = 0; d + 2 < dims; ++d) {
      orders.push_back(orders.front());
      std::swap(orders.back()[d], orders.back()[d + 1]);
    }
  }
  for (const Shape& order : orders) {
    for (std::size_t lead = 1; lead < dims; ++lead) {
      const bool moves =
          order == orders.front() ||
          !std::ranges::equal(std::span(order).first(lead), std::span(orders.front()).first(lead));
      if (moves) tables.push_back({order, lead});
    }
  }
  return without_twins(tables, shape);
}

// Tables that differ in the place of extents of 1 are one: the first stays.
std::vector<Relation::Table> EarlierValues::without_twins(const std::vector<Relation::Table>& tables,
                                                          const Shape& shape) {
  std::set<std::pair<Shape, std::int64_t>> seen;
  std::vector<Relation::Table> different;
  for (const Relation::Table& table : tables) {
    const auto is_long = [&](std::int64_t d) { return shape[static_cast<std::size_t>(d)] != 1; };
    Shape order;
    std::ranges::copy_if(table.order, std::back_inserter(order), is_long);
    const auto lead = std::ranges::count_if(std::span(table.order).first(table.lead), is_long);
    if (seen.emplace(std::move(order), lead).second) different.push_back(table);
  }
  return different;
}

Relation::Table EarlierValues::table_of_rows(const Shape& shape) {
  Relation::Table table{{std::ssize(shape) - 1}, 1};
  for (std::int64_t d = 0; d + 1 < std::ssize(shape); ++d) table.order.push_back(d);
  return table;
}

void EarlierValues::add_columns(std::size_t candidate, const SideTensor& t, const Relation::Table& table,
                                bool is_of_rows) {
  const std::int64_t rows = rows_in(t.shape, table).value_or(0);
  if (rows < fewest_rows || t.values.empty()) return;
  const std::vector<Hash> hashes = column_hashes(t, table, rows);
  tables_.push_back({candidate, table, is_of_rows});
  for (std::size_t j = 0; j < hashes.size(); ++j)
    columns_[rows][hashes[j]].push_back({tables_.size() - 1, static_cast<std::int64_t>(j)});
}

std::vector<EarlierValues::Hash> EarlierValues::column_hashes(const SideTensor& t,
                                                              const Relation::Table& table,
                                                              std::int64_t rows) {
  const std::int64_t width = std::ssize(t.values) / rows;
  std::vector<Hash> hashes(static_cast<std::size_t>(width), 0);
  const auto mix = [&](auto place) {
    in_parallel(width, grain_of(rows), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t j = begin; j < end; ++j) {
          Hash& h = hashes[static_cast<std::size_t>(j)];
          h = mixed(h, t.values[static_cast<std::size_t>(place(r * width + j))]);
        }
      }
    });
  };
  if (std::ranges::is_sorted(table.order)) {
    mix([](std::int64_t i) { return i; });
  } else {
    const std::vector<std::int64_t> at = positions(t.shape, table);
    mix([&](std::int64_t i) { return at[static_cast<std::size_t>(i)]; });
  }
  return hashes;
}

std::optional<Name> EarlierValues::copied(const LogicalTensor& t) const {
  const auto tensor = side_.read(t);
  const auto hash = hash_of(tensor->values);
  if (!hash) return {};
  const auto found = whole_.find(*hash);
  if (found == whole_.end()) return {};
  std::optional<std::size_t> best;
  for (const Place& p : found->second) {
    const EarlierValue& c = candidates_[p.candidate];
    if (tensor->values.size() == 1 && c.name.module != t.id.module && c.scope != module_around(t.id.module))
      continue;
    if (rank(p.candidate, t) < 0) continue;
    // Of what an identity was given and gave the one of this shape; of the names that a module has for one
    // tensor that under which it hands back the gradient.
    const auto nearness = [&](std::size_t candidate) {
      const Name& name = candidates_[candidate].name;
      const bool has_shape = candidates_[candidate].tensor->shape == t.shape;
      const bool has_gradient = name.slot == "input" && side_.find(gradient_of(name, t.id)) != nullptr;
      return std::tuple(rank(candidate, t), has_shape, has_gradient);
    };
    if (!best || nearness(p.candidate) >= nearness(*best)) best = p.candidate;
  }
  return best ? std::optional(candidates_[*best].name) : std::nullopt;
}

std::vector<const LogicalTensor*> EarlierValues::same_as(std::size_t candidate) const {
  const EarlierValue& own = candidates_[candidate];
  if (!own.hash) return {own.tensor};
  std::vector<const LogicalTensor*> same;
  for (const Place& p : whole_.at(*own.hash)) same.push_back(candidates_[p.candidate].tensor);
  return same;
}

std::map<std::size_t, std::vector<std::int64_t>> EarlierValues::with_rows(const SideTensor& tensor) const {
  std::map<std::size_t, std::vector<std::int64_t>> taken;
  if (tensor.shape.size() < 2) return taken;
  const auto known = rows_.find(tensor.shape.back());
  if (known == rows_.end()) return taken;
  const auto width = static_cast<std::size_t>(tensor.shape.back());
  const std::size_t all = tensor.values.size() / width;
  for (std::size_t r = 0; r < all; ++r) {
    const auto found = known->second.find(row_hash(tensor, static_cast<std::int64_t>(r)));
    if (found == known->second.end()) return {};
    for (const Place& p : found->second) {
      auto& rows = taken[p.candidate];
      if (rows.size() == r) rows.push_back(p.at);
    }
  }
  std::erase_if(taken, [&](const auto& one) { return one.second.size() != all; });
  return taken;
}

}  // namespace assay
