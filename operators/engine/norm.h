#pragma once

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

/// What the norms share.
namespace assay {

/// Of x: rstd^3, which gradients may go through, is a normal float32.
inline constexpr Domain norm_domain = {.low = -0x1p42, .high = 0x1p42};

constexpr Attribute normalized_shape = {"normalized_shape", "null",
                                        "the extents normalised over, where weight does not tell"};

/// Any epsilon.
constexpr Solved any_epsilon = {.attribute = "eps", .by = Solved::By::bisection, .low = 1e-15, .high = 1};

/// Splits x into N* and C*, the extents normalised over: as many as weight, bias or normalized_shape has; one
/// if there are none of them.
inline void bind_norm(std::string_view op, Dims& d, InputShapes inputs, const Attributes& a) {
  const Shape& x = shape_of_input(inputs, "x");
  std::size_t rank = 1;
  for (const std::string_view param : {"weight", "bias"}) {
    if (const InputShape* found = find_input(inputs, param)) rank = found->shape.size();
  }
  if (a.has("normalized_shape")) rank = a.list("normalized_shape").size();
  if (rank == 0 || rank > x.size()) {
    throw Error("{}: cannot normalise the last {} dimensions of x, whose shape is {}", op, rank,
                to_string(x));
  }
  const auto first = x.end() - static_cast<std::ptrdiff_t>(rank);
  d.set("N", Shape(x.begin(), first));
  d.set("C", Shape(first, x.end()));
  if (!a.has("normalized_shape")) return;
  const Shape given = a.integers("normalized_shape");
  if (Shape(first, x.end()) != given) {
    throw Error("{}: x has shape {}; normalized_shape is {}", op, to_string(x), to_string(given));
  }
}

template <class T>
struct Moments {
  T mean, rstd;
};

/// Of one group of n elements: the mean of x(i), i < n, and 1 / sqrt(var + eps) with the biased variance.
template <class T, class F>
Moments<T> moments(std::int64_t n, F x, const T& eps) {
  const T count = number<T>(n);
  const T mean = sum<T>(n, x) / count;
  const T squares = sum<T>(n, [&](auto i) {
    const T deviation = x(i) - mean;
    return deviation * deviation;
  });
  return {mean, T(1) / sqrt(squares / count + eps)};
}

/// grad_x(i) = rstd (v - mean(v) - h mean(v h)), with v(i) = w grad_y and h(i) = (x - mean) rstd.
template <class T, class V, class H, class F>
void normalised_gradient(std::int64_t n, V v, H h, const T& rstd, F grad_x) {
  const T count = number<T>(n);
  const T mean_v = sum<T>(n, v) / count;
  const T mean_vh = sum<T>(n, [&](auto i) { return v(i) * h(i); }) / count;
  for (std::int64_t i = 0; i < n; ++i) grad_x(i) = rstd * (v(i) - mean_v - h(i) * mean_vh);
}

}  // namespace assay
