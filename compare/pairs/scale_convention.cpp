#include "assay/compare/pairs/scale_convention.h"

#include <vector>

namespace assay {

bool is_within_micro_batch(const Identity& id) {
  return id.phase == Phase::backward && (id.micro_batch >= 0 || id.arg.ends_with(unreduced));
}

double ScaleConvention::of(const Identity& id) const {
  if (is_within_micro_batch(id)) return factor;
  const auto loss = losses.find(id);
  return loss == losses.end() ? 1 : loss->second.factor;
}

const std::string& ScaleConvention::text_of(const Identity& id) const {
  const auto loss = losses.find(id);
  return loss == losses.end() ? text : loss->second.text;
}

TensorSource ScaleConvention::in_units_of_reference(const Identity& id, const TensorSource& actual) const {
  const double scale = of(id);
  if (scale == 1 || !is_float(actual.dtype())) return actual;
  std::vector<double> values = actual.whole().values();
  for (double& v : values) v /= scale;
  return TensorSource(Tensor::from_values(actual.dtype(), actual.shape(), values));
}

}  // namespace assay
