// Values whose columns are those of earlier ones.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/moves.h"

namespace assay {

// A mask: what compares makes it, and of its columns many are alike.
bool EarlierValues::has_two_values(const std::vector<double>& values) {
  if (values.empty()) return true;
  const double one = values.front();
  const auto other = std::ranges::find_if(values, [&](double v) { return v != one; });
  return std::all_of(other, values.end(), [&](double v) { return v == one || v == *other; });
}

std::optional<Relation> EarlierValues::of_columns(const LogicalTensor& t, const SideTensor& tensor) const {
  if (has_two_values(tensor.values)) return {};
  for (const Relation::Table& table : tables_of(tensor.shape, true)) {
    if (auto r = of_columns(t, tensor, table, false)) return r;
  }
  return {};
}

std::optional<Relation> EarlierValues::of_columns_of_heads(const LogicalTensor& t,
                                                           const SideTensor& tensor) const {
  if (t.shape.size() < 2 || has_two_values(tensor.values)) return {};
  const auto count = std::ssize(tensor.values);
  for (auto known = columns_.rbegin(); known != columns_.rend(); ++known) {
    const std::int64_t width = count / known->first;
    if (known->first * width != count || width <= t.shape.back()) continue;
    SideTensor together = tensor;
    together.shape = pieces_of(t.shape, width);
    if (together.shape != Shape{known->first, width}) continue;
    auto r = of_columns(t, together, {{0, 1}, 1}, false);
    if (!r) continue;
    r->width = width;
    return r;
  }
  return {};
}

// Beside a slice that was moved there may be zeros.
std::optional<Relation> EarlierValues::of_joined_rows(const LogicalTensor& t,
                                                      const SideTensor& tensor) const {
  if (t.shape.empty() || has_two_values(tensor.values)) return {};
  if (auto r = of_columns(t, tensor, table_of_rows(tensor.shape), true)) return r;
  // As the neighbours in an image are put together: each row is several of theirs, the widest first.
  for (auto known = columns_.rbegin(); known != columns_.rend(); ++known) {
    const std::int64_t width = known->first;
    if (width >= t.shape.back() || t.shape.back() % width != 0) continue;
    SideTensor apart = tensor;
    apart.shape = pieces_of(t.shape, width);
    auto r = of_columns(t, apart, table_of_rows(apart.shape), true);
    if (!r) continue;
    r->width = width;
    return r;
  }
  return {};
}

std::optional<Relation> EarlierValues::of_chosen_rows(const LogicalTensor& t,
                                                      const SideTensor& tensor) const {
  std::optional<std::size_t> best;
  for (const auto& [candidate, rows] : with_rows(tensor)) {
    if (rank(candidate, t) >= 0 && (!best || rank(candidate, t) > rank(*best, t))) best = candidate;
  }
  if (!best) return {};
  Name own = name_of(t.id);
  if (own.slot == "input") own.slot = "value";
  return Relation{.kind = Relation::Kind::chosen,
                  .sources = {candidates_[*best].name, std::move(own)},
                  .choice = Relation::each_number};
}

std::optional<Relation> EarlierValues::of_columns(const LogicalTensor& t, const SideTensor& tensor,
                                                  const Relation::Table& table, bool are_rows) const {
  const std::int64_t rows = rows_in(tensor.shape, table).value_or(0);
  const auto known = columns_.find(rows);
  if (rows < fewest_rows || known == columns_.end() || tensor.values.empty()) return {};
  Relation r{.kind = Relation::Kind::columns, .table = table};
  std::vector<std::size_t> used;  // tables
  std::set<std::pair<std::size_t, std::int64_t>> taken;
  std::optional<Place> last;
  const std::vector<Hash> hashes = column_hashes(tensor, table, rows);
  std::vector<std::int64_t> by_loops;
  if (are_rows)
    by_loops = places_by_loops(known->second, hashes, {tensor.shape.begin(), tensor.shape.end() - 1});
  Hash of_zeros = 0;
  for (std::int64_t i = 0; i < rows; ++i) of_zeros = mixed(of_zeros, 0);
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const Hash hash = hashes[i];
    if (are_rows && hash == of_zeros) {
      r.columns.push_back({Relation::zeros, 0});
      continue;
    }
    const auto place = best_column(known->second, hash, last, used, taken, t, are_rows,
                                   by_loops.empty() ? no_place : by_loops[i]);
    if (!place) return {};
    last = place;
    taken.emplace(place->candidate, place->at);
    auto source = std::ranges::find(used, place->candidate);
    if (source == used.end()) source = used.insert(used.end(), place->candidate);
    r.columns.push_back({static_cast<std::size_t>(source - used.begin()), place->at});
  }
  if (used.empty() || used.size() > most_sources) return {};
  for (const std::size_t u : used) {
    r.sources.push_back(candidates_[tables_[u].candidate].name);
    r.tables.push_back(tables_[u].table);
  }
  return r;
}

// Rows that are there twice do not tell which of them was taken. Where loops count them, as slices, windows
// and transposes do, the others tell: the place of each is linear in its indices in the target. Empty: no two
// are alike, or nothing tells.
std::vector<std::int64_t> EarlierValues::places_by_loops(const Places& known, const std::vector<Hash>& hashes,
                                                         const Shape& lead) {
  bool is_any_twice = false;
  std::vector<std::int64_t> at(hashes.size(), no_place);  // of those that are there once
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto found = known.find(hashes[i]);
    if (found == known.end()) continue;
    const std::int64_t first = found->second.front().at;
    const bool is_once = std::ranges::all_of(found->second, [&](const Place& p) { return p.at == first; });
    if (is_once) at[i] = first;
    is_any_twice = is_any_twice || !is_once;
  }
  if (!is_any_twice) return {};
  const auto most_frequent = [](const std::map<std::int64_t, int>& counts) {
    return std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->first;
  };
  std::vector<std::int64_t> linear(at.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t d = lead.size(); d-- > 0; stride *= lead[d]) {
    std::map<std::int64_t, int> steps;
    const auto index = [&](std::size_t i) { return static_cast<std::int64_t>(i) / stride % lead[d]; };
    for (std::size_t i = 0; i + static_cast<std::size_t>(stride) < at.size(); ++i) {
      const std::int64_t next = at[i + static_cast<std::size_t>(stride)];
      if (index(i) + 1 < lead[d] && at[i] != no_place && next != no_place) ++steps[next - at[i]];
    }
    if (lead[d] > 1 && steps.empty()) return {};
    const std::int64_t step = lead[d] > 1 ? most_frequent(steps) : 0;
    for (std::size_t i = 0; i < at.size(); ++i) linear[i] += index(i) * step;
  }
  std::map<std::int64_t, int> begins;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] != no_place) ++begins[at[i] - linear[i]];
  }
  if (begins.empty()) return {};
  const std::int64_t begin = most_frequent(begins);
  for (std::int64_t& place : linear) place += begin;
  return linear;
}

// The column in the place that loops tell; else the one after the last one where it may be; else one of a
// source that is used already; else the nearest. Of equal columns (of all heads, where one was repeated for
// each) the first that is not taken.
std::optional<EarlierValues::Place> EarlierValues::best_column(
    const Places& known, Hash hash, const std::optional<Place>& last, const std::vector<std::size_t>& used,
    const std::set<std::pair<std::size_t, std::int64_t>>& taken, const LogicalTensor& t, bool are_rows,
    std::int64_t by_loops) const {
  const auto found = known.find(hash);
  if (found == known.end()) return {};
  std::optional<Place> best;
  int best_rank = -1;
  for (const Place& p : found->second) {
    int r = rank(tables_[p.candidate].candidate, t);
    if (r < 0 || (tables_[p.candidate].is_of_rows && !are_rows)) continue;
    if (std::ranges::find(used, p.candidate) != used.end()) r += 1000;
    if (last && last->candidate == p.candidate && p.at == last->at + 1) r += 2000;
    if (p.at == by_loops) r += 4000;
    if (!taken.contains({p.candidate, p.at})) r += 500;
    if (r > best_rank || (r == best_rank && best->candidate != p.candidate)) {
      best = p;
      best_rank = r;
    }
  }
  return best;
}

}  // namespace assay
