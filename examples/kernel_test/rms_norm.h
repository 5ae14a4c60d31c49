#pragma once

#include <cmath>
#include <cstddef>
#include <span>

/// The kernel under test: y = x w / sqrt(mean(x^2) + eps) over rows of w.size() channels.
inline void rms_norm(std::span<const float> x, std::span<const float> w, float eps, std::span<float> y) {
  const std::size_t channels = w.size();
  for (std::size_t row = 0; row + channels <= x.size(); row += channels) {
    float squares = 0;
    for (std::size_t c = 0; c < channels; ++c) squares += x[row + c] * x[row + c];
    const float scale = 1 / std::sqrt(squares / static_cast<float>(channels) + eps);
    for (std::size_t c = 0; c < channels; ++c) y[row + c] = x[row + c] * scale * w[c];
  }
}

/// The same with a fault that a tolerance of 1e-3 lets through: the last channel is left out of the mean.
inline void rms_norm_without_tail(std::span<const float> x, std::span<const float> w, float eps,
                                  std::span<float> y) {
  const std::size_t channels = w.size();
  for (std::size_t row = 0; row + channels <= x.size(); row += channels) {
    float squares = 0;
    for (std::size_t c = 0; c + 1 < channels; ++c) squares += x[row + c] * x[row + c];
    const float scale = 1 / std::sqrt(squares / static_cast<float>(channels) + eps);
    for (std::size_t c = 0; c < channels; ++c) y[row + c] = x[row + c] * scale * w[c];
  }
}
