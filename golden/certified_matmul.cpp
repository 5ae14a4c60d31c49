#include "assay/golden/certified_matmul.h"

#include <cblas.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"
#include "assay/golden/matmul_kernels.h"
#include "assay/golden/matmul_panel.h"

namespace assay {
namespace {

constexpr double u = 0x1p-53;  // unit roundoff of float64

std::size_t size(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// OpenBLAS has one thread count for the whole process; the last user restores it.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() {
    const std::lock_guard lock(mutex);
    if (users++ > 0) return;
    outside = openblas_get_num_threads();
    openblas_set_num_threads(1);
  }
  ~SingleThreadedBlas() {
    const std::lock_guard lock(mutex);
    if (--users == 0) openblas_set_num_threads(outside);
  }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  static inline std::mutex mutex;
  static inline int users = 0, outside = 1;
};

// hi + lo to float32, rounded once. The float64 between is rounded to odd, which the second rounding cannot
// mistake for a tie (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums").
float round_sum(double hi, double lo) {
  const double sum = hi + lo, part = sum - hi;
  const double rest = (hi - (sum - part)) + (lo - part);
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if (rest != 0 && bits % 2 == 0) bits += (rest > 0) == (sum > 0) ? 1u : std::uint64_t(-1);
  return static_cast<float>(std::bit_cast<double>(bits) + 0.);  // no negative zero but by underflow
}

struct Doubtful {
  std::uint32_t row, column;  // in the block
  double bound;               // of the sum of |a b|; infinity or NaN where a factor has one
  DoubleDoubleDot dot;
};

// One thread's way through blocks of y.
class BlockProduct {
 public:
  BlockProduct(const Lines& a, const Lines& b, std::span<float> y) : a_(a), b_(b), y_(y), pa_(a), pb_(b) {
    c_ = allocate<double>(Panel::max_lines * Panel::max_lines);
  }

  Certificate run(std::int64_t first_row, std::int64_t rows, std::int64_t first_column,
                  std::int64_t columns) {
    pa_.start(first_row, rows);
    pb_.start(first_column, columns);
    multiply();
    round();
    repair();
    return std::exchange(certificate_, {});
  }

 private:
  // c = a b in float64. float32 products are exact there (48 bits, between 2^-298 and 2^256), so only the
  // additions round, with or without FMA.
  void multiply() {
    for (std::int64_t k = 0; k < a_.depth; k += Panel::max_depth) {
      const double* wide_a = pa_.widen(k);
      const double* wide_b = pb_.widen(k);
      const auto narrow = [](std::int64_t n) { return static_cast<blasint>(n); };
      cblas_dgemm(CblasRowMajor, a_.contiguous ? CblasNoTrans : CblasTrans,
                  b_.contiguous ? CblasTrans : CblasNoTrans, narrow(pa_.count()), narrow(pb_.count()),
                  narrow(pa_.depth_at(k)), 1, wide_a, narrow(pa_.wide_stride()), wide_b,
                  narrow(pb_.wide_stride()), k == 0 ? 0 : 1, c_.get(), narrow(pb_.count()));
    }
    pa_.finish();
    pb_.finish();
  }

  // Two certificates, with S = ||a_i|| ||b_j|| >= sum_k |a_ik b_kj| (Cauchy-Schwarz):
  //
  // Exact. All products are multiples of q = (lowest bit in a_i) (lowest bit in b_j), hence all partial sums
  // in any order are, and none exceeds S. If S <= 2^53 q, float64 holds them all: nothing was rounded.
  //
  // Certified. Whatever the order, |c - true| <= (K-1) u S (Jeannerod and Rump 2013, "Improved error bounds
  // for inner products in floating-point arithmetic"). With e = (K+1) u S, float64's c - e and c + e enclose
  // the true value: their own roundings are at most u (|c| + e) <= u S (1 + 2 K u), less than the spare 2 u
  // S. Rounding is monotone, so if both ends round to one float32, the true value does.
  void round() {
    const std::int64_t columns = pb_.count();
    std::vector<std::uint32_t> in_row(size(columns + 1));
    doubtful_.clear();
    for (std::int64_t i = 0; i < pa_.count(); ++i) {
      const double error = static_cast<double>(a_.depth + 1) * u * pa_.norms()[size(i)];
      const double limit = 0x1p53 / pa_.units()[size(i)];
      const RowCounts counts = round_row(c_.get() + i * columns, size(columns), error, pb_.norms().data(),
                                         limit, pb_.units().data(), &element(i, 0), in_row.data());
      for (std::size_t d = 0; d < counts.doubtful; ++d)
        doubtful_.push_back({static_cast<std::uint32_t>(i), in_row[d], 0, {}});
      certificate_.exact += static_cast<std::int64_t>(counts.exact);
    }
    certificate_.certified =
        pa_.count() * columns - certificate_.exact - static_cast<std::int64_t>(doubtful_.size());
  }

  void repair() {
    for (Doubtful& d : doubtful_) d.bound = pa_.norms()[d.row] * pb_.norms()[d.column];
    for (std::int64_t k = 0; k < a_.depth; k += Panel::max_depth) {
      for (Doubtful& d : doubtful_) {
        if (!std::isfinite(d.bound)) continue;
        const double anchor = std::ldexp(6, std::ilogb(d.bound) + 1);  // 1.5 2^(x + 2), 2^x > bound
        add_dot(pa_.line(d.row, k), pb_.line(d.column, k), size(pa_.depth_at(k)), anchor, d.dot);
      }
    }
    for (const Doubtful& d : doubtful_) {
      float& y = element(d.row, d.column);
      if (round_double_double(d, y)) {
        ++certificate_.repaired_double_double;
      } else {
        y = exact(d);
        ++certificate_.repaired_exact;
      }
    }
  }

  // A lane's sum of its anchor 1.5 2^(x + 2) and products stays within 2^(x + 2) and 2^(x + 3), for
  // 2^x >= S >= sum |a b|: it rounds each product to multiples of 2^(x - 50), and what that leaves of the
  // product is exact and at most 2^(x - 51) <= 8 u S. So is the error of joining two lanes. With m additions
  // in all, the correction adds up at most m such remainders, each of its additions losing at most u of their
  // absolute sum: in all 8 m^2 u^2 S. Twice that also pays for the rounding of correction -+ error.
  // Everything here is a multiple of q = (lowest bit in a_i) (lowest bit in b_j), as is the true value: if
  // they are less than q apart, they are equal. So nearly all ties and zeros are settled here.
  bool round_double_double(const Doubtful& d, float& y) const {
    if (!std::isfinite(d.bound)) return false;
    const std::int64_t calls = (a_.depth + Panel::max_depth - 1) / Panel::max_depth;
    const double mu = static_cast<double>(a_.depth + calls * std::int64_t{2 * max_lanes}) * u;
    double error = 16 * mu * mu * d.bound;
    if (error < pa_.lowest(d.row) * pb_.lowest(d.column)) error = 0;
    y = round_sum(d.dot.sum, d.dot.correction - error);
    const float above = round_sum(d.dot.sum, d.dot.correction + error);
    return std::bit_cast<std::uint32_t>(y) == std::bit_cast<std::uint32_t>(above);
  }

  float exact(const Doubtful& d) const {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    if (std::isnan(pa_.norms()[d.row]) || std::isnan(pb_.norms()[d.column])) return nan;
    const std::int64_t i = pa_.first() + d.row, j = pb_.first() + d.column;
    ExactSum sum;
    sum.add(0.);  // a sum of negative zeros is +0 too, as every sum is that starts from nothing
    for (std::int64_t k = 0; k < a_.depth; ++k) sum.add(double{a_(i, k)} * double{b_(j, k)});
    const double rounded = sum.round(DType::float32);
    return std::isnan(rounded) ? nan : static_cast<float>(rounded);
  }

  float& element(std::int64_t i, std::int64_t j) const {
    return y_[size((pa_.first() + i) * b_.count + pb_.first() + j)];
  }

  Lines a_, b_;
  std::span<float> y_;
  Panel pa_, pb_;
  hwy::AlignedFreeUniquePtr<double[]> c_;
  std::vector<Doubtful> doubtful_;
  Certificate certificate_;
};

void check(const MatrixView& m, const char* name) {
  if (m.rows < 0 || m.columns < 0)
    throw Error("certified_matmul: {} is {} x {}; no extent can be negative", name, m.rows, m.columns);
  const std::int64_t stored_columns = m.transposed ? m.rows : m.columns;
  if (m.leading_dimension < stored_columns)
    throw Error("certified_matmul: {} is {} x {}{} with leading dimension {}; expected at least {}", name,
                m.rows, m.columns, m.transposed ? ", stored transposed," : "", m.leading_dimension,
                stored_columns);
}

}  // namespace

Certificate& Certificate::operator+=(const Certificate& other) {
  exact += other.exact;
  certified += other.certified;
  repaired_double_double += other.repaired_double_double;
  repaired_exact += other.repaired_exact;
  return *this;
}

Certificate certified_matmul(const MatrixView& a, const MatrixView& b, std::span<float> y, int threads) {
  check(a, "a");
  check(b, "b");
  const std::int64_t rows = a.rows, columns = b.columns;
  if (a.columns != b.rows)
    throw Error("certified_matmul: a is {} x {}, b is {} x {}; a's columns must be b's rows", rows, a.columns,
                b.rows, columns);
  if (size(rows) * size(columns) != y.size())
    throw Error("certified_matmul: y has {} elements, expected {} x {}", y.size(), rows, columns);
  if (y.empty()) return {};
  if (a.columns == 0) {
    std::fill(y.begin(), y.end(), 0.f);
    return {.exact = rows * columns};
  }
  // Blocks as large as a panel, and as many as there are threads. Rows are cut finer than columns: OpenBLAS
  // loses 2 % at 256 rows, but 15 % at 256 columns.
  const auto parts = [](std::int64_t n, std::int64_t part) { return (n + part - 1) / part; };
  const std::int64_t across = parts(columns, Panel::max_lines);
  const std::int64_t wanted = std::min(parts(std::max(threads, 1), across), parts(rows, 64));
  const std::int64_t down = std::max(parts(rows, Panel::max_lines), wanted);
  const std::int64_t block_rows = parts(rows, down), block_columns = parts(columns, across);
  const std::int64_t blocks = parts(rows, block_rows) * across;

  const SingleThreadedBlas single_threaded;
  std::atomic<std::int64_t> next = 0;
  const auto work = [&] {
    BlockProduct product(rows_of(a), columns_of(b), y);
    Certificate done;
    for (std::int64_t block = next++; block < blocks; block = next++) {
      const std::int64_t i = block / across * block_rows, j = block % across * block_columns;
      done += product.run(i, std::min(block_rows, rows - i), j, std::min(block_columns, columns - j));
    }
    return done;
  };
  std::vector<std::future<Certificate>> others;
  for (std::int64_t t = 1; t < std::min<std::int64_t>(threads, blocks); ++t)
    others.push_back(std::async(std::launch::async, work));
  Certificate total = work();
  for (auto& other : others) total += other.get();
  return total;
}

}  // namespace assay
