#include "assay/operators/engine/axes.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {

std::size_t axis(std::int64_t dim, std::size_t rank) {
  const auto n = static_cast<std::int64_t>(std::max<std::size_t>(rank, 1));
  if (dim < -n || dim >= n) {
    throw Error("dim {} is outside of a tensor with {} dimensions; expected {} to {}", dim, rank, -n, n - 1);
  }
  return static_cast<std::size_t>(dim < 0 ? dim + n : dim);
}

void bind_axis(Dims& d, const Shape& x, std::int64_t dim) {
  const auto c = x.begin() + static_cast<std::ptrdiff_t>(axis(dim, x.size()));
  d.set("A", Shape(x.begin(), c));
  d.set("C", x.empty() ? Shape() : Shape{*c});
  d.set("B", x.empty() ? Shape() : Shape(c + 1, x.end()));
}

std::vector<bool> axes(const std::vector<std::int64_t>& dims, std::size_t rank) {
  std::vector<bool> chosen(rank, dims.empty());
  for (const std::int64_t dim : dims) {
    const std::size_t a = axis(dim, rank);
    if (rank == 0) continue;
    if (chosen[a]) throw Error("dim {} is named twice", dim);
    chosen[a] = true;
  }
  return chosen;
}

std::vector<std::int64_t> positions(const Shape& shape, const std::vector<bool>& chosen) {
  std::vector<std::int64_t> found = {0};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (std::int64_t& position : found) position *= shape[d];
    if (!chosen[d]) continue;
    std::vector<std::int64_t> longer;
    for (const std::int64_t position : found) {
      for (std::int64_t i = 0; i < shape[d]; ++i) longer.push_back(position + i);
    }
    found = std::move(longer);
  }
  return found;
}

Shape broadcast(const Shape& a, const Shape& b) {
  if (a.size() < b.size()) return broadcast(b, a);
  Shape result = a;
  for (std::size_t i = 1; i <= b.size(); ++i) {
    std::int64_t& extent = result[a.size() - i];
    const std::int64_t other = b[b.size() - i];
    if (extent != other && extent != 1 && other != 1) {
      throw Error("{} and {} cannot be broadcast together", to_string(a), to_string(b));
    }
    if (extent == 1) extent = other;
  }
  return result;
}

Shape broadcast_dims(const Shape& from, const Shape& result) {
  Shape dims;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::size_t at = d + result.size() - from.size();
    dims.push_back(from[d] == result[at] ? static_cast<std::int64_t>(at) : not_in_result);
  }
  return dims;
}

std::vector<std::int64_t> broadcast_positions(const Shape& from, const Shape& result) {
  std::vector<std::int64_t> found = {0};
  for (std::size_t d = 0; d < result.size(); ++d) {
    const std::size_t missing = result.size() - from.size();
    const std::int64_t extent = d < missing ? 1 : from[d - missing];
    std::vector<std::int64_t> longer;
    longer.reserve(found.size() * static_cast<std::size_t>(result[d]));
    for (const std::int64_t position : found) {
      for (std::int64_t i = 0; i < result[d]; ++i)
        longer.push_back(position * extent + (extent == 1 ? 0 : i));
    }
    found = std::move(longer);
  }
  return found;
}

}  // namespace assay
