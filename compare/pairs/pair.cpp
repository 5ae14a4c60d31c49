#include "assay/compare/pairs/pair.h"

#include <algorithm>

#include "assay/compare/pairs/meeting.h"
#include "assay/compare/result/trouble.h"

namespace assay {

Merged as_compared(const Dump& actual, const Pair& pair, const std::optional<ScaleConvention>& convention) {
  Merged merged = merge(actual, *pair.actual);
  const Shape shape = pair.reference == nullptr ? pair.actual->shape
                                                : common_shape(pair.actual->shape, pair.reference->shape);
  const auto take = [&](TensorSource& t) {
    if (convention) t = convention->in_units_of_reference(pair.id(), t);
    if (t.shape() != shape) t = t.reshaped(shape);
  };
  take(merged.tensor);
  if (merged.sum_of_replicas) take(*merged.sum_of_replicas);
  return merged;
}

bool is_nothing(const Dump& actual, const Dump& reference, const Pair& pair) {
  if (pair.actual != nullptr && pair.reference != nullptr) return false;
  const LogicalTensor& t = pair.actual != nullptr ? *pair.actual : *pair.reference;
  const Dump& dump = pair.actual != nullptr ? actual : reference;
  if (t.id.phase == Phase::none || without_bits(dump, t) != nullptr) return false;
  if (element_count(t.shape) == 0) return true;
  if (t.id.slot != "grad" || !is_float(t.dtype)) return false;
  bool is_zero = true;
  const auto trouble = trouble_in([&] {
    merge(dump, t).tensor.for_each_window([&](const Tensor& window, std::int64_t) {
      is_zero = is_zero && std::ranges::all_of(window.values(), [](double v) { return v == 0; });
    });
  });
  return is_zero && !trouble;
}

}  // namespace assay
