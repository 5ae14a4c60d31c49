#include "assay/compare/measure/error_map.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "assay/compare/measure/chunks.h"
#include "assay/compare/measure/ordinals.h"
#include "assay/compare/measure/overflow.h"

namespace assay {
namespace {

constexpr std::int64_t most_cells = 64;  // along each side
constexpr std::size_t most_worst = 8;

ErrorMap empty_map(const Shape& shape, std::int64_t size, bool has_allowed) {
  ErrorMap map;
  map.columns = shape.empty() ? 1 : shape.back();
  map.rows = map.columns == 0 ? 0 : size / map.columns;
  map.grid_rows = static_cast<int>(std::min(map.rows, most_cells));
  map.grid_columns = static_cast<int>(std::min(map.columns, most_cells));
  map.in_units_of_allowed = has_allowed;
  map.cells.assign(static_cast<std::size_t>(map.grid_rows) * static_cast<std::size_t>(map.grid_columns), 0);
  map.first_row = map.rows;
  map.first_column = map.columns;
  map.last_row = map.last_column = -1;
  return map;
}

bool is_worse(const ErrorMap::Element& a, const ErrorMap::Element& b) {
  if (a.ratio != b.ratio) return a.ratio > b.ratio;
  return a.error != b.error ? a.error > b.error : a.at < b.at;
}

void keep(std::vector<ErrorMap::Element>& worst, const ErrorMap::Element& e) {
  if (worst.size() == most_worst && !is_worse(e, worst.back())) return;
  if (worst.size() == most_worst) worst.pop_back();
  worst.insert(std::upper_bound(worst.begin(), worst.end(), e, is_worse), e);
}

// Largest values and counts: the order of merging does not matter.
void merge_into(ErrorMap& total, const ErrorMap& part) {
  for (std::size_t i = 0; i < total.cells.size(); ++i)
    total.cells[i] = std::max(total.cells[i], part.cells[i]);
  total.outside += part.outside;
  total.first_row = std::min(total.first_row, part.first_row);
  total.last_row = std::max(total.last_row, part.last_row);
  total.first_column = std::min(total.first_column, part.first_column);
  total.last_column = std::max(total.last_column, part.last_column);
  for (const ErrorMap::Element& e : part.worst) keep(total.worst, e);
}

class Pass {
 public:
  Pass(const TensorSource& actual, const TensorSource& reference, const Allowed& allowed, ErrorMap map)
      : actual_(actual), reference_(reference), allowed_(allowed), map_(std::move(map)) {}

  void run(std::int64_t begin, std::int64_t count) {
    a_ = actual_.window(begin, count);
    r_ = reference_.window(begin, count);
    actual_values_ = a_.values();
    reference_values_ = r_.values();
    begin_ = begin;
    // Piece by piece: what of the window lies in one row of one cell.
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t row = (begin + i) / map_.columns, column = (begin + i) % map_.columns;
      const int cell_row = cell_of(row, map_.grid_rows, map_.rows);
      const int cell_column = cell_of(column, map_.grid_columns, map_.columns);
      const std::int64_t end = std::min(count, i + map_.column_of(cell_column + 1) - column);
      double& cell =
          map_.cells[static_cast<std::size_t>(cell_row) * static_cast<std::size_t>(map_.grid_columns) +
                     static_cast<std::size_t>(cell_column)];
      for (std::int64_t k = i; k < end; ++k) look(static_cast<std::size_t>(k), row, column + k - i, cell);
      i = end;
    }
  }
  const ErrorMap& map() const { return map_; }

 private:
  static int cell_of(std::int64_t position, int cells, std::int64_t extent) {
    return static_cast<int>(position * cells / extent);
  }

  void look(std::size_t i, std::int64_t row, std::int64_t column, double& cell) {
    const double error = error_of(i);
    if (error == 0) return;
    const std::int64_t at = begin_ + static_cast<std::int64_t>(i);
    const double r = reference_values_[i];
    double allowed = allowed_.atol + allowed_.rtol * std::abs(r);
    if (!allowed_.bound.empty()) allowed += allowed_.bound[static_cast<std::size_t>(at)];
    const bool inside = error <= allowed && error != infinity;
    const double ratio = error == infinity || !(allowed > 0) ? infinity : error / allowed;
    cell = std::max(cell, map_.in_units_of_allowed ? ratio : error);
    keep(map_.worst, {at, actual_values_[i], r, error, ratio});
    if (inside) return;
    ++map_.outside;
    map_.first_row = std::min(map_.first_row, row);
    map_.last_row = std::max(map_.last_row, row);
    map_.first_column = std::min(map_.first_column, column);
    map_.last_column = std::max(map_.last_column, column);
  }

  // As measure() has it: infinite where NaN or Inf differ, unless the dtype forces the infinity.
  double error_of(std::size_t i) const {
    const double a = actual_values_[i], r = reference_values_[i];
    if (!is_float(a_.dtype()))
      return std::abs(
          static_cast<double>(integer_at(a_.dtype(), a_.bytes(), i) - integer_at(r_.dtype(), r_.bytes(), i)));
    if (std::isfinite(a) && std::isfinite(r)) return std::abs(a - r);
    const bool equal = (std::isnan(a) && std::isnan(r)) || a == r;
    return equal || overflows_to(a_.dtype(), r, a) ? 0 : infinity;
  }

  const TensorSource& actual_;
  const TensorSource& reference_;
  const Allowed& allowed_;
  ErrorMap map_;
  Tensor a_, r_;
  std::vector<double> actual_values_, reference_values_;
  std::int64_t begin_ = 0;
};

}  // namespace

ErrorMap error_map(const TensorSource& actual, const TensorSource& reference, const Allowed& allowed,
                   int threads) {
  const std::int64_t size = actual.size();
  const bool has_allowed = allowed.atol > 0 || allowed.rtol > 0 || !allowed.bound.empty();
  const ErrorMap empty = empty_map(actual.shape(), size, has_allowed);
  ErrorMap total = empty;
  std::mutex mutex;
  Chunks chunks(size);
  chunks.run(threads, [&] {
    Pass pass(actual, reference, allowed, empty);
    chunks.take([&](const Chunk& c) { pass.run(c.begin, c.count); });
    const std::lock_guard lock(mutex);
    merge_into(total, pass.map());
  });
  return total;
}

}  // namespace assay
