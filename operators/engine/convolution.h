#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/parallel.h"
#include "assay/operators/engine/pool.h"
#include "assay/operators/engine/products.h"
#include "assay/operators/engine/recorded.h"

/// Convolutions over the last one to three dimensions, PyTorch's rules, as products of matrices: what a
/// window sees is copied into a row (im2col; Chellapilla et al. 2006), zeros where it sees padding: they are
/// terms of its sums as others are.
namespace assay {

constexpr Attribute convolution_stride = {"stride", "[1]", "from window to window"},
                    convolution_dilation = {"dilation", "[1]", "distance of a window's elements"},
                    convolution_groups = {"groups", "1",
                                          "G: groups of channels, each with windows of its own"};

/// A map from N samples of C channels over `axes.in` to M channels over `axes.out`, and its transpose. w is
/// [M, C / groups, kernel].
struct Convolution {
  std::int64_t N, C, M, groups;
  std::vector<PoolAxis> axes;

  std::int64_t in() const { return extent(&PoolAxis::in); }
  std::int64_t out() const { return extent(&PoolAxis::out); }
  std::int64_t kernel() const { return extent(&PoolAxis::kernel); }
  std::int64_t inputs() const { return C / groups; }   ///< channels of one group
  std::int64_t outputs() const { return M / groups; }  ///< channels of one group
  /// How many elements of a window may share an element of the input.
  std::int64_t covering() const;

  std::int64_t extent(std::int64_t PoolAxis::*of) const {
    std::int64_t product = 1;
    for (const PoolAxis& axis : axes) product *= axis.*of;
    return product;
  }
};

/// Which extents of x, if any, are samples: x is [N, C, spatial] or [C, spatial].
/// @throws Error  where x and weight do not have one to three spatial dimensions, or x has none inside
std::size_t spatial_dimensions(std::string_view op, const Shape& x, const Shape& weight);
/// Divides `channels`.
/// @throws Error  if it does not
std::int64_t groups_of(std::string_view op, const Attributes&, std::string_view what, std::int64_t channels);

/// Strides, paddings and dilations, alike on all axes where their extents are, with which weight has that
/// many windows of x; those whose elements are neighbours first.
std::vector<Candidate> possible_windows(const Shape& x, const Shape& weight, const Shape& y);

/// For rows begin to end of the windows: the flat position of each of its elements in the input, -1 outside.
std::vector<std::int64_t> window_positions(const Convolution&, std::int64_t begin, std::int64_t end);
/// The same of one element k of all windows.
std::vector<std::int64_t> element_positions(const Convolution&, std::int64_t k);

/// Inputs at the same distances from the beginnings of windows: these elements of windows cover them.
struct Covered {
  struct OnAxis {
    std::vector<std::int64_t> inputs, elements;
  };
  std::vector<OnAxis> axes;
  std::vector<std::int64_t> inputs, elements;  ///< flat positions
};
std::vector<Covered> covered_inputs(const Convolution&);
/// For inputs begin to end, and per element: the flat position of the window that has them there, -1 where
/// there is none.
std::vector<std::int64_t> covering_windows(const Convolution&, const Covered&, std::int64_t begin,
                                           std::int64_t end);

/// rows(begin, end) of n in parallel, as many at once as a matrix of this width may have that is copied: it
/// stays in the second cache, but has rows enough that the other factor is packed for many.
template <class F>
void in_blocks(std::int64_t n, std::int64_t width, F rows) {
  constexpr std::int64_t cached = 1 << 16, most = 1 << 24, enough = 64;
  const std::int64_t one = std::max<std::int64_t>(width, 1);
  const std::int64_t size = std::max<std::int64_t>(std::max(cached / one, std::min(enough, most / one)), 1);
  each_in_parallel((n + size - 1) / size, 1,
                   [&](std::int64_t b) { rows(b * size, std::min(n, (b + 1) * size)); });
}

/// y[n, m, o] = sum over the channels of m's group and the elements of window o of w x, + bias[m]
/// @param bias  may be null
template <class T>
void convolve(const Convolution& c, const T* x, const T* w, const T* bias, T* y) {
  const std::int64_t S = c.in(), O = c.out(), K = c.kernel(), I = c.inputs(), J = c.outputs();
  in_blocks(O, I * K, [&](std::int64_t begin, std::int64_t end) {
    const auto seen = window_positions(c, begin, end);
    const std::int64_t rows = end - begin;
    std::vector<T> windows(static_cast<std::size_t>(rows * I * K), T(0));
    for (std::int64_t ng = 0; ng < c.N * c.groups; ++ng) {
      const T* of_x = x + ng * I * S;
      T* to = windows.data();
      for (std::int64_t o = 0; o < rows; ++o) {
        for (std::int64_t i = 0; i < I; ++i) {
          for (std::int64_t k = 0; k < K; ++k, ++to) {
            const std::int64_t s = seen[static_cast<std::size_t>(o * K + k)];
            if (s >= 0) *to = of_x[i * S + s];
          }
        }
      }
      const std::int64_t first = ng % c.groups * J;
      const Strided<const T> of_w = {w + first * I * K, I * K, 1};
      products<T>({rows,
                   J,
                   I * K,
                   {windows.data(), I * K, 1},
                   of_w.transposed(),
                   {y + ng * J * O + begin, 1, O},
                   {bias == nullptr ? nullptr : bias + first, 0, 1}});
    }
  });
}

/// x[n, c, s] = sum over the channels of c's group and the windows that see s of w y, + bias[c]
/// @param bias  may be null
template <class T>
void convolve_transposed(const Convolution& c, const T* y, const T* w, const T* bias, T* x) {
  const std::int64_t S = c.in(), O = c.out(), K = c.kernel(), I = c.inputs(), J = c.outputs();
  for (const Covered& part : covered_inputs(c)) {
    const auto E = static_cast<std::int64_t>(part.elements.size());
    // Of the weights, those that meet these inputs: [group, J, E, I].
    std::vector<T> weights;
    weights.reserve(static_cast<std::size_t>(c.M * E * I));
    for (std::int64_t m = 0; m < c.M; ++m) {
      for (const std::int64_t k : part.elements) {
        for (std::int64_t i = 0; i < I; ++i) weights.push_back(w[(m * I + i) * K + k]);
      }
    }
    in_blocks(std::ssize(part.inputs), J * E, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t rows = end - begin;
      const auto seen = covering_windows(c, part, begin, end);
      std::vector<T> windows(static_cast<std::size_t>(rows * J * E), T(0)),
          made(static_cast<std::size_t>(rows * I), T(0));
      for (std::int64_t ng = 0; ng < c.N * c.groups; ++ng) {
        const T* of_y = y + ng * J * O;
        T* to = windows.data();
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t j = 0; j < J; ++j) {
            for (std::int64_t e = 0; e < E; ++e, ++to) {
              const std::int64_t o = seen[static_cast<std::size_t>(r * E + e)];
              if (o >= 0) *to = of_y[j * O + o];
            }
          }
        }
        const std::int64_t g = ng % c.groups;
        products<T>({rows,
                     I,
                     J * E,
                     {windows.data(), J * E, 1},
                     {weights.data() + g * J * E * I, I, 1},
                     {made.data(), I, 1},
                     {bias == nullptr ? nullptr : bias + g * I, 0, 1}});
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t s = part.inputs[static_cast<std::size_t>(begin + r)];
          for (std::int64_t i = 0; i < I; ++i)
            x[(ng * I + i) * S + s] = made[static_cast<std::size_t>(r * I + i)];
        }
      }
    });
  }
}

/// w[m, i, k] = sum over samples and windows of x y, at the element k of each window
template <class T>
void convolve_weights(const Convolution& c, const T* x, const T* y, T* w) {
  const std::int64_t N = c.N, S = c.in(), O = c.out(), K = c.kernel(), I = c.inputs(), J = c.outputs();
  // One group of y as [J, N O].
  std::vector<T> of_y(static_cast<std::size_t>(J * N * O), T(0));
  for (std::int64_t g = 0; g < c.groups; ++g) {
    for (std::int64_t j = 0; j < J; ++j) {
      for (std::int64_t n = 0; n < N; ++n)
        std::copy_n(y + (n * c.M + g * J + j) * O, O, of_y.data() + (j * N + n) * O);
    }
    in_blocks(I * K, N * O, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t rows = end - begin;
      std::vector<T> windows(static_cast<std::size_t>(rows * N * O), T(0));
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t i = (begin + r) / K;
        const auto seen = element_positions(c, (begin + r) % K);
        for (std::int64_t n = 0; n < N; ++n) {
          const T* of_x = x + (n * c.C + g * I + i) * S;
          for (std::int64_t o = 0; o < O; ++o) {
            const std::int64_t s = seen[static_cast<std::size_t>(o)];
            if (s >= 0) windows[static_cast<std::size_t>((r * N + n) * O + o)] = of_x[s];
          }
        }
      }
      const Strided<const T> columns = {of_y.data(), N * O, 1};
      products<T>({rows,
                   J,
                   N * O,
                   {windows.data(), N * O, 1},
                   columns.transposed(),
                   {w + g * J * I * K + begin, 1, I * K}});
    });
  }
}

/// bias[m] = sum over samples and positions of y, [N, M, size]
template <class T>
void sum_of_channels(std::int64_t N, std::int64_t M, std::int64_t size, const T* y, T* bias) {
  each_in_parallel(M, grain_of(N * size), [&](std::int64_t m) {
    bias[m] = sum<T>(N * size, [&](auto i) { return y[(i / size * M + m) * size + i % size]; });
  });
}

}  // namespace assay
