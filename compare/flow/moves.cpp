#include "assay/compare/flow/moves.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// Rows of tokens that an index [tokens, k] assigns to each expert, in the order of tokens.
std::vector<std::int64_t> rows_of(const SideTensor& index, std::int64_t choice, std::int64_t tokens) {
  std::vector<std::int64_t> rows;
  if (choice == Relation::each_number) {
    for (const double v : index.values) {
      if (!(v >= 0 && v < static_cast<double>(tokens))) return {};
      rows.push_back(std::llround(v));
    }
    return rows;
  }
  if (tokens == 0 || index.values.size() % static_cast<std::size_t>(tokens) != 0) return rows;
  const std::size_t k = index.values.size() / static_cast<std::size_t>(tokens);
  if (choice == Relation::every_choice) {
    for (const std::int64_t place : places_by_choice(index))
      rows.push_back(place / static_cast<std::int64_t>(k));
    return rows;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto begin = index.values.begin() + t * static_cast<std::int64_t>(k);
    if (std::find(begin, begin + static_cast<std::int64_t>(k), static_cast<double>(choice)) !=
        begin + static_cast<std::int64_t>(k))
      rows.push_back(t);
  }
  return rows;
}

}  // namespace

std::vector<std::int64_t> places_by_choice(const SideTensor& index) {
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < index.values.size(); ++i) {
    if (index.values[i] >= 0) places.push_back(static_cast<std::int64_t>(i));  // below: no expert gets it
  }
  std::ranges::stable_sort(places, {},
                           [&](std::int64_t i) { return index.values[static_cast<std::size_t>(i)]; });
  return places;
}

Shape pieces_of(Shape shape, std::int64_t width) {
  if (shape.empty() || width < 1) return shape;
  const std::int64_t own = shape.back(), count = element_count(shape);
  if (width > own && own > 0 && width % own == 0 && count % width == 0) return {count / width, width};
  if (own % width != 0) return shape;
  shape.back() /= width;
  shape.push_back(width);
  return shape;
}

bool for_each_column(const Relation& r, const Shape& shape, const std::vector<Shape>& sources, const Map& f) {
  const Shape own = r.width > 0 ? pieces_of(shape, r.width) : shape;
  const auto rows = rows_in(own, r.table);
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
    if (c.source != Relation::zeros && c.at >= widths[c.source]) return false;
  }
  const std::vector<std::int64_t> to = positions(own, r.table);
  for (std::int64_t row = 0; row < *rows; ++row) {
    for (std::int64_t j = 0; j < width; ++j) {
      const Relation::Column& c = r.columns[static_cast<std::size_t>(j)];
      if (c.source == Relation::zeros) continue;
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

}  // namespace assay
