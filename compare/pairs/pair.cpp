#include "assay/compare/pairs/pair.h"

#include "assay/compare/pairs/meeting.h"

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

}  // namespace assay
