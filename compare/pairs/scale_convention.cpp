#include "assay/compare/pairs/scale_convention.h"

#include <algorithm>
#include <vector>

namespace assay {

bool is_within_micro_batch(const Identity& id) {
  return id.phase == Phase::backward && (id.micro_batch >= 0 || id.arg.ends_with(unreduced));
}

Identity in_any_micro_batch(Identity id) {
  id.step = id.micro_batch = 0;
  return id;
}

double ScaleConvention::of(const Identity& id) const {
  const bool is_loss = id.slot == "loss" && std::ranges::find(losses, in_any_micro_batch(id)) != losses.end();
  return is_within_micro_batch(id) || is_loss ? factor : 1;
}

TensorSource ScaleConvention::in_units_of_reference(const Identity& id, const TensorSource& actual) const {
  const double scale = of(id);
  if (scale == 1 || !is_float(actual.dtype())) return actual;
  std::vector<double> values = actual.whole().values();
  for (double& v : values) v /= scale;
  return TensorSource(Tensor::from_values(actual.dtype(), actual.shape(), values));
}

}  // namespace assay
