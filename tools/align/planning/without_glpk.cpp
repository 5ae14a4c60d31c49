// For wheels: GLPK's licence is the GPL, and what has GLPK inside is handed on under it. Covers are chosen
// greedily.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <ranges>

#include "assay/align/planning/integer_program.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

struct Set {
  double cost;
  std::vector<std::size_t> rows = {};
};

class Covering {
 public:
  Covering(std::vector<Set> sets, std::size_t rows) : sets_(std::move(sets)), in_(rows, 0) {}

  /// @return  which sets; nothing if some row is in none
  std::optional<std::vector<bool>> greedily() {
    std::vector<bool> chosen(sets_.size(), false);
    for (std::size_t open = in_.size(); open > 0;) {
      const Set* best = nullptr;
      for (const Set& s : sets_) {
        if (new_rows(s) > 0 && (!best || price(s) < price(*best))) best = &s;
      }
      if (!best) return std::nullopt;
      open -= new_rows(*best);
      for (const std::size_t r : best->rows) ++in_[r];
      chosen[static_cast<std::size_t>(best - sets_.data())] = true;
    }
    drop_needless(chosen);
    return chosen;
  }

 private:
  std::size_t new_rows(const Set& s) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(s.rows, [&](std::size_t r) { return in_[r] == 0; }));
  }
  double price(const Set& s) const { return s.cost / static_cast<double>(new_rows(s)); }

  // Later sets may have all that an earlier one was chosen for.
  void drop_needless(std::vector<bool>& chosen) {
    std::vector<std::size_t> order(sets_.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return sets_[i].cost; });
    for (const std::size_t i : order) {
      if (!chosen[i] || std::ranges::any_of(sets_[i].rows, [&](std::size_t r) { return in_[r] == 1; }))
        continue;
      chosen[i] = false;
      for (const std::size_t r : sets_[i].rows) --in_[r];
    }
  }

  const std::vector<Set> sets_;
  std::vector<int> in_;  // how many chosen sets have a row
};

// Chvatal 1979 (Math. Oper. Res. 4, 233): greedily chosen sets cost at most 1 + 1/2 + .. + 1/d times the
// least, d the rows of the largest.
double greatest_ratio(const std::vector<Set>& sets) {
  std::size_t largest = 1;
  for (const Set& s : sets) largest = std::max(largest, s.rows.size());
  double ratio = 0;
  for (std::size_t k = 1; k <= largest; ++k) ratio += 1 / static_cast<double>(k);
  return ratio;
}

}  // namespace

std::optional<IntegerProgram::Solution> IntegerProgram::solve(double, int) const {
  bool is_covering = true;
  std::vector<Set> sets;
  for (const Variable& v : variables_) {
    is_covering &= v.is_integer && v.low == 0 && v.high == 1 && v.cost > 0;
    sets.push_back({v.cost});
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    is_covering &= rows_[r].low == 1 && rows_[r].high >= static_cast<double>(rows_[r].terms.size());
    for (const auto& [variable, coefficient] : rows_[r].terms) {
      is_covering &= coefficient == 1;
      sets[static_cast<std::size_t>(variable)].rows.push_back(r);
    }
  }
  if (!is_covering)
    throw Error(
        "this assay was built without GLPK, which balances stages, as wheels are because of its licence; "
        "expected assay built from its source beside libglpk-dev (Debian, Ubuntu)");
  const auto chosen = Covering(sets, rows_.size()).greedily();
  if (!chosen) return std::nullopt;
  Solution s;
  s.gap = 1 - 1 / greatest_ratio(sets);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    s.values.push_back((*chosen)[i] ? 1 : 0);
    s.cost += s.values.back() * sets[i].cost;
  }
  return s;
}

}  // namespace assay::align
