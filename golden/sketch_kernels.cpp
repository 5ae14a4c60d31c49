#include "assay/golden/sketch_kernels.h"

#include <numeric>

#include "assay/golden/sketch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/golden/sketch_kernels.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 8 lanes: sign_lanes are whole pairs of vectors then.
using SignLanes = hn::CappedTag<double, sign_lanes / 2>;

// `Rows` rows at once share what is loaded of the signs, and hide the latency of the additions.
template <std::size_t Rows>
HWY_INLINE void project(const double* x, std::size_t stride, std::size_t columns, const double* signs,
                        std::size_t lanes, double* w) {
  const SignLanes d;
  const std::size_t n = hn::Lanes(d);
  for (std::size_t j = 0; j < lanes; j += 2 * n) {
    hn::Vec<SignLanes> a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0, c0 = a0, c1 = a0, e0 = a0, e1 = a0;
    for (std::size_t c = 0; c < columns; ++c) {
      const auto s0 = hn::LoadU(d, signs + c * lanes + j), s1 = hn::LoadU(d, signs + c * lanes + j + n);
      const auto xa = hn::Set(d, x[c]);
      a0 = hn::MulAdd(xa, s0, a0);
      a1 = hn::MulAdd(xa, s1, a1);
      if constexpr (Rows == 4) {
        const auto xb = hn::Set(d, x[stride + c]), xc = hn::Set(d, x[2 * stride + c]),
                   xe = hn::Set(d, x[3 * stride + c]);
        b0 = hn::MulAdd(xb, s0, b0);
        b1 = hn::MulAdd(xb, s1, b1);
        c0 = hn::MulAdd(xc, s0, c0);
        c1 = hn::MulAdd(xc, s1, c1);
        e0 = hn::MulAdd(xe, s0, e0);
        e1 = hn::MulAdd(xe, s1, e1);
      }
    }
    hn::StoreU(a0, d, w + j);
    hn::StoreU(a1, d, w + j + n);
    if constexpr (Rows == 4) {
      hn::StoreU(b0, d, w + lanes + j);
      hn::StoreU(b1, d, w + lanes + j + n);
      hn::StoreU(c0, d, w + 2 * lanes + j);
      hn::StoreU(c1, d, w + 2 * lanes + j + n);
      hn::StoreU(e0, d, w + 3 * lanes + j);
      hn::StoreU(e1, d, w + 3 * lanes + j + n);
    }
  }
}

void ProjectRows(const double* x, std::size_t stride, std::size_t rows, std::size_t columns,
                 const double* signs, std::size_t lanes, double* w) {
  std::size_t r = 0;
  for (; r + 4 <= rows; r += 4) project<4>(x + r * stride, stride, columns, signs, lanes, w + r * lanes);
  for (; r < rows; ++r) project<1>(x + r * stride, stride, columns, signs, lanes, w + r * lanes);
}

std::uint64_t PrintRow(const std::uint64_t* bits, std::size_t columns, std::uint64_t row_key,
                       const std::uint64_t* keys) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t n = hn::Lanes(d);
  const auto row = hn::Set(d, row_key), first = hn::Set(d, 0xBF58476D1CE4E5B9),
             second = hn::Set(d, 0x94D049BB133111EB);
  auto sum = hn::Zero(d);
  std::size_t c = 0;
  for (; c + n <= columns; c += n) {
    auto v = hn::Xor(hn::LoadU(d, bits + c), hn::Add(row, hn::LoadU(d, keys + c)));
    v = hn::Mul(hn::Xor(v, hn::ShiftRight<30>(v)), first);
    v = hn::Mul(hn::Xor(v, hn::ShiftRight<27>(v)), second);
    sum = hn::Add(sum, hn::Xor(v, hn::ShiftRight<31>(v)));
  }
  // Lanes one by one: SumOfLanes adds signed lanes where AVX-512 reduces, and those overflow.
  HWY_ALIGN std::uint64_t of_lanes[hn::MaxLanes(d)];
  hn::Store(sum, d, of_lanes);
  std::uint64_t total = std::accumulate(of_lanes, of_lanes + n, std::uint64_t{0});
  for (; c < columns; ++c) total += mixed(bits[c] ^ (row_key + keys[c]));
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace assay
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(ProjectRows);
HWY_EXPORT(PrintRow);

void project_rows(const double* x, std::size_t stride, std::size_t rows, std::size_t columns,
                  const double* signs, std::size_t lanes, double* w) {
  HWY_DYNAMIC_DISPATCH(ProjectRows)(x, stride, rows, columns, signs, lanes, w);
}

std::uint64_t print_row(const std::uint64_t* bits, std::size_t columns, std::uint64_t row_key,
                        const std::uint64_t* keys) {
  return HWY_DYNAMIC_DISPATCH(PrintRow)(bits, columns, row_key, keys);
}

}  // namespace assay
#endif
