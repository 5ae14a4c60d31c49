#include "assay/compare/measure/locate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "assay/compare/measure/measure.h"
#include "assay/compare/measure/ordinals.h"
#include "assay/compare/measure/overflow.h"

namespace assay {
namespace {}  // namespace

PairValues::PairValues(DType left, DType right, const std::byte* left_bytes, const std::byte* right_bytes,
                       std::size_t count)
    : actual(left), a(count), r(count) {
  decode(left, std::span(left_bytes, count * size_of(left)), a);
  decode(right, std::span(right_bytes, count * size_of(right)), r);
}

bool PairValues::finite(std::size_t i) const {
  return std::isfinite(a[i]) && std::isfinite(r[i]);
}

double PairValues::error(std::size_t i) const {
  return std::abs(a[i] - r[i]);
}

bool PairValues::same(std::size_t i) const {
  return a[i] == r[i] || (std::isnan(a[i]) && std::isnan(r[i]));
}

bool PairValues::overflowed(std::size_t i) const {
  return overflows_to(actual, r[i], a[i]);
}

void locate(Metrics& m, const TensorSource& actual, const TensorSource& reference, const Allowed& allowed,
            std::int64_t block) {
  // The first element where is(values, i), in the block that begins at `at`.
  const auto find = [&](std::int64_t& at, auto is) {
    if (at < 0) return;
    const std::int64_t count = std::min(block, actual.size() - at);
    const Tensor a = actual.window(at, count), r = reference.window(at, count);
    const PairValues v(a.dtype(), r.dtype(), a.bytes().data(), r.bytes().data(),
                       static_cast<std::size_t>(count));
    std::size_t i = 0;
    while (i + 1 < v.a.size() && !is(v, i, a, r)) ++i;
    at += static_cast<std::int64_t>(i);
  };
  using Size = std::size_t;
  find(m.max_abs_at,
       [&](const PairValues& v, Size i, auto&...) { return v.finite(i) && v.error(i) == m.max_abs; });
  find(m.max_rel_at, [&](const PairValues& v, Size i, auto&...) {
    return v.finite(i) && v.r[i] != 0 && v.error(i) / std::abs(v.r[i]) == m.max_rel;
  });
  find(m.worst_at, [&](const PairValues& v, Size i, auto&...) {
    if (!v.finite(i)) return m.worst_ratio == (v.mismatched(i) ? infinity : 0);
    const double limit = allowed.atol + allowed.rtol * std::abs(v.r[i]);
    return (v.error(i) == 0 ? 0 : v.error(i) / limit) == m.worst_ratio;
  });
  find(m.different_bits_at, [](const PairValues& v, Size i, const Tensor& a, const Tensor& r) {
    if (a.dtype() != r.dtype()) return !v.same(i);
    const Size size = size_of(a.dtype());
    return std::memcmp(a.bytes().data() + i * size, r.bytes().data() + i * size, size) != 0;
  });
  const DType unit = coarser(actual.dtype(), reference.dtype());
  find(m.max_ulp_at, [&](const PairValues& v, Size i, auto&...) {
    if (!v.finite(i)) return false;
    return std::abs(ordinal(unit, v.a[i]) - ordinal(unit, v.r[i])) == static_cast<std::int64_t>(m.max_ulp);
  });
}

}  // namespace assay
