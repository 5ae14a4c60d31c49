#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "assay/golden/tensor_source.h"

namespace assay {

/// Tensors of one shape read side by side, window by window: no tensor is in memory as a whole. nullptr
/// stands for zeros.
using Columns = std::vector<const TensorSource*>;

/// f(position, x): x[k] is the element of columns[k].
template <class F>
void for_each_element(const Columns& columns, F f) {
  constexpr std::int64_t window = 1 << 14;
  constexpr std::size_t most = 8;
  const std::int64_t size = columns.front()->size();
  std::array<std::vector<double>, most> values;
  std::array<double, most> x{};
  for (std::int64_t begin = 0; begin < size; begin += window) {
    const std::int64_t count = std::min(window, size - begin);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      values[k].assign(static_cast<std::size_t>(count), 0);
      if (columns[k] == nullptr) continue;
      const Tensor part = columns[k]->window(begin, count);
      decode(part.dtype(), part.bytes(), values[k]);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      for (std::size_t k = 0; k < columns.size(); ++k) x[k] = values[k][i];
      f(begin + static_cast<std::int64_t>(i), x.data());
    }
  }
}

/// The right value of an element, and its allowed rounding error.
struct Expected {
  double value, allowed;
};

/// The elements outside their allowed error.
struct StepErrors {
  double ratio = 0;  ///< largest error / allowed
  std::int64_t over = 0, first = -1, last = -1;
  double bits = 0;  ///< how much they say against it: log2(error / allowed) of those outside, added up
  bool holds() const { return ratio <= 1; }
};

/// @param expected  the right value, as a function of x; x[0] is the judged element
template <class F>
StepErrors check_elements(const Columns& columns, F expected) {
  StepErrors errors;
  for_each_element(columns, [&](std::int64_t at, const double* x) {
    const Expected e = expected(x);
    const double error = std::abs(x[0] - e.value);
    const bool equal = x[0] == e.value || (std::isnan(x[0]) && std::isnan(e.value));
    // NaN fails: a ratio that is none counts as the largest.
    const double ratio = equal ? 0 : e.allowed > 0 && !std::isnan(error) ? error / e.allowed : HUGE_VAL;
    errors.ratio = std::max(errors.ratio, ratio);
    if (ratio <= 1) return;
    ++errors.over;
    if (errors.first < 0) errors.first = at;
    errors.last = at;
  });
  return errors;
}

}  // namespace assay
