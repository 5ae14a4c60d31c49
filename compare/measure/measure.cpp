#include "assay/compare/measure/measure.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "assay/compare/measure/block.h"
#include "assay/compare/measure/chunks.h"
#include "assay/compare/measure/exact_sums.h"
#include "assay/compare/measure/fused_pass.h"
#include "assay/compare/measure/locate.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// Elements [begin, end) of a window.
std::span<const std::byte> part(const Tensor& window, std::size_t begin, std::size_t end) {
  const std::size_t element = size_of(window.dtype());
  return window.bytes().subspan(begin * element, (end - begin) * element);
}

}  // namespace

std::int64_t worst_element(const Metrics& m) {
  if (m.special_mismatch_at >= 0) return m.special_mismatch_at;
  return m.worst_ratio == 0 && m.different_bits_at >= 0 ? m.different_bits_at : m.worst_at;
}

DType coarser(DType a, DType b) {
  if (!is_float(a) || !is_float(b)) return is_float(a) ? b : a;
  // Of equal precision the one with the smaller range: float16 before tfloat32.
  const auto fineness = [](DType d) {
    return std::pair(format_of(d).precision(), format_of(d).exponent_bits);
  };
  return fineness(a) <= fineness(b) ? a : b;
}

Metrics measure(const TensorSource& actual, const TensorSource& reference, const Allowed& allowed,
                int threads, bool exact_sums) {
  if (actual.shape() != reference.shape()) {
    throw Error("shapes {} and {} cannot be compared element by element", to_string(actual.shape()),
                to_string(reference.shape()));
  }
  if (is_float(actual.dtype()) != is_float(reference.dtype())) {
    throw Error("{} and {} cannot be compared element by element", name(actual.dtype()),
                name(reference.dtype()));
  }
  if (!allowed.bound.empty() && static_cast<std::int64_t>(allowed.bound.size()) != actual.size()) {
    throw Error("{} bounds for {} elements; expected one each", allowed.bound.size(), actual.size());
  }
  Chunks chunks(actual.size());
  std::vector<Partial> partials(chunks.count());
  ExactSums exact;
  std::mutex mutex;  // of `exact`
  const bool fused = FusedPass::takes(actual.dtype(), reference.dtype(), allowed);
  chunks.run(threads, [&] {
    // Tens of KiB of stack: taken from the heap and given back for each of 100,000 small tensors, they tear
    // it into pieces too small to be taken again.
    BlockPass blocks(actual.dtype(), reference.dtype(), allowed);
    FusedPass steps(actual.dtype(), reference.dtype(), allowed);
    ExactSums own;
    chunks.take([&](const Chunk& c) {
      const Tensor a = actual.window(c.begin, c.count), r = reference.window(c.begin, c.count);
      if (exact_sums) own.add(a.dtype(), r.dtype(), a.bytes(), r.bytes());
      const auto count = static_cast<std::size_t>(c.count);
      const std::size_t whole = fused ? count / fused_step * fused_step : 0;
      Partial& partial = partials[c.index];
      if (whole > 0) partial = steps.run(part(a, 0, whole), part(r, 0, whole), c.begin);
      if (whole == count) return;
      const auto rest = c.begin + static_cast<std::int64_t>(whole);
      merge_into(partial, blocks.run(part(a, whole, count), part(r, whole, count), rest));
    });
    if (!exact_sums) return;
    const std::lock_guard lock(mutex);
    exact.merge(own);
  });
  Partial total;
  for (const Partial& p : partials) merge_into(total, p);
  if (exact_sums) exact.replace(total);
  Metrics metrics = metrics_of(std::move(total), actual, reference);
  if (fused) locate(metrics, actual, reference, allowed, fused_block);
  return metrics;
}

Metrics metrics_of(Partial total, const TensorSource& actual, const TensorSource& reference) {
  finish(total);
  if (squares_left_the_range(total))
    finish_scaled(total, actual, reference);
  else if (actual_is_far_below(total))
    total.metrics.one_minus_cosine = one_minus_cosine(actual, reference);
  total.metrics.ulp_dtype = coarser(actual.dtype(), reference.dtype());
  return std::move(total.metrics);
}

}  // namespace assay
