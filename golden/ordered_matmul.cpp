// Lanes are columns of y: each adds up its own terms in their order, k after k. An FMA does not round
// products: it adds up those that are exact, of two factors that are float32, to the same bits. Factors are
// copied into panels as they are read, a stretch of k at a time (Goto and van de Geijn 2008,
// doi:10.1145/1356052.1356053); meanwhile the sums of the stretches before wait in y.
#include "assay/golden/ordered_matmul.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
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

constexpr std::size_t most_bytes = 64;  // of a vector

template <class T>
class Multiplier {
 public:
  explicit Multiplier(const OrderedMatmul<T>& of) : of_(of) {}

  void run() {
    for (std::int64_t n = 0; n < of_.N; n += block_columns) {
      const std::int64_t columns = std::min(block_columns, of_.N - n);
      std::int64_t k = 0;
      do {
        const Stretch of_k = {k, std::min(block_depth, of_.K - k)};
        const bool exact_b = pack(packed_b_, of_.b.transposed(), n, columns, of_k, width_of);
        for (std::int64_t m = 0; m < of_.M; m += block_rows) {
          const std::int64_t rows = std::min(block_rows, of_.M - m);
          const bool exact =
              !reads_a_in_place() && pack(packed_a_, of_.a, m, rows, of_k, height_of) && exact_b;
          for (std::int64_t j = 0; j < columns; j += width_of(columns - j)) {
            const Columns some = {n + j, std::min(width_of(columns - j), columns - j),
                                  packed_b_.data() + j * of_k.count};
            if (exact || of_.exact_products)
              strip<true>(m, rows, some, of_k);
            else
              strip<false>(m, rows, some, of_k);
          }
        }
        k += of_k.count;
      } while (k < of_.K);
    }
  }

 private:
  struct Stretch {
    std::int64_t first, count;
  };
  struct Columns {
    std::int64_t first, count;
    const T* b;
  };

  using Tag = hn::CappedTag<T, most_bytes / sizeof(T)>;
  static constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  // A tile's sums, a row of b and an element of a fill the registers: 32 of them, or 16.
  static constexpr bool has_32_registers = HWY_ARCH_ARM_A64 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3);
  static constexpr std::int64_t most_vectors = 3, wide = most_vectors * lanes,
                                most_rows = has_32_registers ? 8 : 4;
  // A strip of b stays in the first cache, a block of a in the second.
  static constexpr std::int64_t block_depth = 256, block_rows = 16 * most_rows, block_columns = 32 * wide;

  // What is read once is not worth a copy.
  bool reads_a_in_place() const { return of_.N <= lanes; }

  // Of the tiles where so many columns or rows are left.
  static std::int64_t width_of(std::int64_t left) {
    return std::min((left + lanes - 1) / lanes, most_vectors) * lanes;
  }
  static std::int64_t height_of(std::int64_t left) {
    std::int64_t height = most_rows;
    while (height > left) height /= 2;
    return height;
  }

  // Rows of x, as many as a tile has side by side, those that lack as zeros; whether all are float32. Lines
  // of memory are read as a whole, whichever way x lies.
  template <class F>
  static bool pack(std::vector<T>& panels, const Strided<const T>& x, std::int64_t first, std::int64_t count,
                   const Stretch& k, F side_by_side) {
    bool exact = std::is_same_v<T, double>;
    panels.resize(static_cast<std::size_t>((count + side_by_side(count)) * k.count));
    const auto pack_group = [&](std::int64_t i, std::int64_t c, std::int64_t depth) {
      const std::int64_t side = side_by_side(count - i), rows = std::min(side, count - i);
      T* to = panels.data() + i * k.count + c * side;
      const T* from = x.x + (first + i) * x.row + (k.first + c) * x.column;
      if (rows < side) std::fill_n(to, side * depth, T(0));
      if (depth > 1) {
        for (std::int64_t r = 0; r < rows; ++r)
          exact &= copy(from + r * x.row, x.column, to + r, side, depth);
      } else if (rows == wide) {
        exact &= copy(from, x.row, to, 1, wide);
      } else if (rows == most_rows) {
        exact &= copy(from, x.row, to, 1, most_rows);
      } else {
        exact &= copy(from, x.row, to, 1, rows);
      }
      return side;
    };
    if (x.row < x.column) {
      for (std::int64_t c = 0; c < k.count; ++c) {
        for (std::int64_t i = 0; i < count;) i += pack_group(i, c, 1);
      }
      return exact;
    }
    constexpr std::int64_t at_once = 16;  // whose lines of `to` stay in the first cache
    for (std::int64_t i = 0; i < count; i += side_by_side(count - i)) {
      for (std::int64_t c = 0; c < k.count; c += at_once) pack_group(i, c, std::min(at_once, k.count - c));
    }
    return exact;
  }

  HWY_INLINE static bool copy(const T* from, std::int64_t step, T* to, std::int64_t step_to,
                              std::int64_t count) {
    bool exact = true;
    for (std::int64_t i = 0; i < count; ++i) {
      const T v = from[i * step];
      exact &= static_cast<T>(static_cast<float>(v)) == v;
      to[i * step_to] = v;
    }
    return exact;
  }

  template <bool exact>
  void strip(std::int64_t m, std::int64_t rows, const Columns& n, const Stretch& k) const {
    switch ((n.count + lanes - 1) / lanes) {
      case 1:
        return tiles<exact, 1>(m, rows, n, k);
      case 2:
        return tiles<exact, 2>(m, rows, n, k);
      default:
        return tiles<exact, most_vectors>(m, rows, n, k);
    }
  }

  template <bool exact, int V>
  void tiles(std::int64_t m, std::int64_t rows, const Columns& n, const Stretch& k) const {
    for (std::int64_t i = 0; i < rows; i += height_of(rows - i)) {
      Strided<const T> a = {packed_a_.data() + i * k.count, 1, height_of(rows - i)};
      if (reads_a_in_place())
        a = {of_.a.x + (m + i) * of_.a.row + k.first * of_.a.column, of_.a.row, of_.a.column};
      switch (height_of(rows - i)) {
        case 1:
          tile<exact, 1, V>(a, m + i, n, k);
          break;
        case 2:
          tile<exact, 2, V>(a, m + i, n, k);
          break;
        case 4:
          tile<exact, 4, V>(a, m + i, n, k);
          break;
        default:
          tile<exact, most_rows, V>(a, m + i, n, k);
      }
    }
  }

  template <bool exact, int R, int V>
  HWY_NOINLINE void tile(const Strided<const T>& a, std::int64_t m, const Columns& n,
                         const Stretch& k) const {
    const Tag tag;
    const bool in_place = of_.y.column == 1 && n.count == V * lanes;
    T elements[V * lanes] = {};
    hn::Vec<Tag> sums[R][V];
    for (int r = 0; r < R; ++r) {
      const T* from = in_place ? &of_.y(m + r, n.first) : elements;
      if (!in_place && k.first > 0) {
        for (std::int64_t j = 0; j < n.count; ++j) elements[j] = of_.y(m + r, n.first + j);
      }
      for (int v = 0; v < V; ++v)
        sums[r][v] = k.first == 0 ? hn::Zero(tag) : hn::LoadU(tag, from + v * lanes);
    }
    const T *of_k = a.x, *b = n.b;
    for (std::int64_t i = 0; i < k.count; ++i, of_k += a.column, b += V * lanes) {
      hn::Vec<Tag> of_b[V];
      for (int v = 0; v < V; ++v) of_b[v] = hn::LoadU(tag, b + v * lanes);
      for (int r = 0; r < R; ++r) {
        const auto of_a = hn::Set(tag, of_k[r * a.row]);
        for (int v = 0; v < V; ++v)
          sums[r][v] =
              exact ? hn::MulAdd(of_a, of_b[v], sums[r][v]) : hn::Add(sums[r][v], hn::Mul(of_a, of_b[v]));
      }
    }
    const bool adds = of_.last.x != nullptr && k.first + k.count == of_.K;
    for (int r = 0; r < R; ++r) {
      T* to = in_place ? &of_.y(m + r, n.first) : elements;
      for (int v = 0; v < V; ++v) hn::StoreU(sums[r][v], tag, to + v * lanes);
      if (in_place && !adds) continue;
      for (std::int64_t j = 0; j < n.count; ++j)
        of_.y(m + r, n.first + j) = adds ? to[j] + of_.last(m + r, n.first + j) : to[j];
    }
  }

  const OrderedMatmul<T>& of_;
  std::vector<T> packed_a_, packed_b_;
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

// Of each k: products, more where sums do not lie side by side, and the factors that are packed.
template <class T>
std::int64_t cost(const OrderedMatmul<T>& of) {
  constexpr auto lanes = static_cast<std::int64_t>(HWY_NAMESPACE::most_bytes / sizeof(T));
  constexpr std::int64_t of_packing = 32;  // products in the time of one copy
  const std::int64_t products = (of.N + lanes - 1) / lanes * lanes * of.M;
  return products + (of.y.column == 1 ? 0 : products / 5) + of_packing * (of.N + (of.N > lanes ? of.M : 0));
}

// As it is, or y^T = b^T a^T, which has the same sums.
template <class T>
OrderedMatmul<T> cheaper(const OrderedMatmul<T>& of) {
  const OrderedMatmul<T> other = {
      of.N, of.M, of.K, of.b.transposed(), of.a.transposed(), of.y.transposed(), of.last.transposed()};
  return cost(other) < cost(of) ? other : of;
}

// Rows and columns of y do not depend on each other. Each stretch of the longer side packs the other factor.
template <class T, class F>
void in_stretches(const OrderedMatmul<T>& of, F multiply_some) {
  constexpr std::int64_t whole_tiles = 96, terms_of_an_operation = 8, stretches_of_a_thread = 4;
  const bool by_rows = of.M > of.N;
  const std::int64_t length = by_rows ? of.M : of.N, across = by_rows ? of.N : of.M;
  const std::int64_t enough = std::max(grain_of(across * of.K / terms_of_an_operation),
                                       length / (stretches_of_a_thread * ThreadScope::current()));
  in_parallel(length, (enough + whole_tiles - 1) / whole_tiles * whole_tiles,
              [&](std::int64_t begin, std::int64_t end) {
                OrderedMatmul<T> some = of;
                (by_rows ? some.M : some.N) = end - begin;
                if (by_rows)
                  some.a.x += begin * of.a.row;
                else
                  some.b.x += begin * of.b.column;
                some.y.x += begin * (by_rows ? of.y.row : of.y.column);
                if (of.last.x != nullptr) some.last.x += begin * (by_rows ? of.last.row : of.last.column);
                multiply_some(some);
              });
}

}  // namespace

void multiply(const OrderedMatmul<float>& of) {
  in_stretches(cheaper(of), [](const auto& some) { HWY_DYNAMIC_DISPATCH(multiply_float)(some); });
}
void multiply(const OrderedMatmul<double>& of) {
  in_stretches(cheaper(of), [](const auto& some) { HWY_DYNAMIC_DISPATCH(multiply_double)(some); });
}

}  // namespace assay
#endif  // HWY_ONCE
