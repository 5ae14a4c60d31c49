// Lanes are columns of y: each adds up its own terms in their order, k after k. No FMA, which would not round
// the products.
#include "assay/golden/ordered_matmul.h"

#include <algorithm>
#include <cstddef>
#include <vector>

// SVE's vectors cannot be elements of an array.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/ordered_matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "assay/golden/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Of a vector. Longer ones would be half empty: an expert has few tokens.
constexpr std::size_t most_bytes = 32;

template <class T>
class Multiplier {
 public:
  explicit Multiplier(const OrderedMatmul<T>& of) : of_(of) {}

  void run() {
    std::int64_t n = 0;
    for (; n + wide < of_.N; n += wide) columns<2>(n);
    if (n + lanes < of_.N)
      columns<2>(n);
    else if (n < of_.N)
      columns<1>(n);
  }

 private:
  using Tag = hn::CappedTag<T, most_bytes / sizeof(T)>;
  static constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  static constexpr std::int64_t wide = 2 * lanes, most_rows = 4;

  // Columns from n on, as many as there are of V vectors.
  template <int V>
  void columns(std::int64_t n) {
    const std::int64_t width = V * lanes, count = std::min(width, of_.N - n);
    const bool in_place = of_.b.column == 1 && count == width;
    Strided<const T> b = {of_.b.x + n * of_.b.column, of_.b.row, 1};
    if (!in_place) b = packed({b.x, of_.b.row, of_.b.column}, count, width);
    for (std::int64_t m = 0; m < of_.M; m += most_rows) {
      switch (std::min(most_rows, of_.M - m)) {
        case 1:
          tile<1, V>(m, n, count, b);
          break;
        case 2:
          tile<2, V>(m, n, count, b);
          break;
        case 3:
          tile<3, V>(m, n, count, b);
          break;
        default:
          tile<most_rows, V>(m, n, count, b);
      }
    }
  }

  Strided<const T> packed(const Strided<const T>& b, std::int64_t count, std::int64_t width) {
    packed_.assign(static_cast<std::size_t>(of_.K * width), T(0));
    for (std::int64_t j = 0; j < count; ++j) {
      T* to = packed_.data() + j;
      for (std::int64_t k = 0; k < of_.K; ++k) to[k * width] = b(k, j);
    }
    return {packed_.data(), width, 1};
  }

  template <int R, int V>
  void tile(std::int64_t m, std::int64_t n, std::int64_t count, const Strided<const T>& b) const {
    const Tag tag;
    hn::Vec<Tag> sums[R][V];
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(tag);
    }
    const T* a = of_.a.x + m * of_.a.row;
    for (std::int64_t k = 0; k < of_.K; ++k) {
      hn::Vec<Tag> of_b[V];
      for (int v = 0; v < V; ++v) of_b[v] = hn::LoadU(tag, b.x + k * b.row + v * lanes);
      for (int r = 0; r < R; ++r) {
        const auto of_a = hn::Set(tag, a[r * of_.a.row + k * of_.a.column]);
        for (int v = 0; v < V; ++v) sums[r][v] = hn::Add(sums[r][v], hn::Mul(of_a, of_b[v]));
      }
    }
    const bool in_place = of_.y.column == 1 && count == V * lanes && of_.last.x == nullptr;
    T elements[V * lanes];
    for (int r = 0; r < R; ++r) {
      T* to = in_place ? &of_.y(m + r, n) : elements;
      for (int v = 0; v < V; ++v) hn::StoreU(sums[r][v], tag, to + v * lanes);
      if (!in_place) put(elements, m + r, n, count);
    }
  }

  void put(const T* elements, std::int64_t m, std::int64_t n, std::int64_t count) const {
    for (std::int64_t j = 0; j < count; ++j)
      of_.y(m, n + j) = of_.last.x == nullptr ? elements[j] : elements[j] + of_.last(m, n + j);
  }

  const OrderedMatmul<T>& of_;
  std::vector<T> packed_;
};

void multiply_float(const OrderedMatmul<float>& of) {
  Multiplier<float>(of).run();
}
void multiply_double(const OrderedMatmul<double>& of) {
  Multiplier<double>(of).run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {

HWY_EXPORT(multiply_float);
HWY_EXPORT(multiply_double);

// Elements moved, one by one where they do not lie side by side.
template <class T>
std::int64_t cost(const OrderedMatmul<T>& of) {
  constexpr auto lanes = static_cast<std::int64_t>(HWY_NAMESPACE::most_bytes / sizeof(T));
  return (of.N + lanes - 1) / lanes * of.M * of.K + (of.b.column == 1 ? 0 : of.K * of.N) +
         (of.y.column == 1 ? 0 : of.M * of.N);
}

// As it is, or y^T = b^T a^T, which has the same sums.
template <class T>
OrderedMatmul<T> cheaper(const OrderedMatmul<T>& of) {
  const OrderedMatmul<T> other = {
      of.N, of.M, of.K, of.b.transposed(), of.a.transposed(), of.y.transposed(), of.last.transposed()};
  return cost(other) < cost(of) ? other : of;
}

// Columns of y do not depend on each other.
template <class T, class F>
void by_columns(const OrderedMatmul<T>& of, F multiply_some) {
  constexpr std::int64_t whole_tiles = 64, terms_of_an_operation = 8;
  const std::int64_t enough = grain_of(of.M * of.K / terms_of_an_operation);
  in_parallel(of.N, (enough + whole_tiles - 1) / whole_tiles * whole_tiles,
              [&](std::int64_t begin, std::int64_t end) {
                OrderedMatmul<T> some = of;
                some.N = end - begin;
                some.b.x += begin * of.b.column;
                some.y.x += begin * of.y.column;
                if (of.last.x != nullptr) some.last.x += begin * of.last.column;
                multiply_some(some);
              });
}

}  // namespace

void multiply(const OrderedMatmul<float>& of) {
  by_columns(cheaper(of), [](const auto& some) { HWY_DYNAMIC_DISPATCH(multiply_float)(some); });
}
void multiply(const OrderedMatmul<double>& of) {
  by_columns(cheaper(of), [](const auto& some) { HWY_DYNAMIC_DISPATCH(multiply_double)(some); });
}

}  // namespace assay
#endif  // HWY_ONCE
