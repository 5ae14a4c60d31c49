#include "assay/operators/engine/copy.h"

#include <algorithm>

namespace assay {

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

Positions box_positions(const Shape& whole, std::size_t axis, std::int64_t start, const Shape& part) {
  const Shape stride = strides_of(whole);
  return positions_of(part,
                      [&](std::size_t d, std::int64_t i) { return (d == axis ? start + i : i) * stride[d]; });
}

Copies::Copies(const Positions& from, std::int64_t size) : begin_(static_cast<std::size_t>(size) + 1, 0) {
  for (const std::int64_t j : from) {
    if (j != nowhere) ++begin_[static_cast<std::size_t>(j) + 1];
  }
  for (std::size_t j = 1; j < begin_.size(); ++j) begin_[j] += begin_[j - 1];
  outputs_.resize(begin_.back());
  std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] != nowhere)
      outputs_[next[static_cast<std::size_t>(from[i])]++] = static_cast<std::int64_t>(i);
  }
}

std::span<const std::int64_t> Copies::of(std::int64_t input) const {
  const auto j = static_cast<std::size_t>(input);
  return std::span(outputs_).subspan(begin_[j], begin_[j + 1] - begin_[j]);
}

std::int64_t Copies::most() const {
  std::size_t most = 0;
  for (std::size_t j = 1; j < begin_.size(); ++j) most = std::max(most, begin_[j] - begin_[j - 1]);
  return static_cast<std::int64_t>(most);
}

}  // namespace assay
