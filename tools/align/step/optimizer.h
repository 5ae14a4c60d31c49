#pragma once

#include <vector>

#include "assay/align/arithmetic/arithmetic.h"
#include "assay/align/settings/optimizer_settings.h"

namespace assay::align {

/// What an optimizer knows of a parameter, or of a shard of it: "exp_avg" and "exp_avg_sq", of Muon
/// "momentum_buffer".
using OptimizerState = std::vector<NamedTensor>;
OptimizerState initial_state(bool by_muon, DType, const Shape&);

struct Update {
  Tensor value;
  OptimizerState state;
};

/// One parameter, or a shard of one, at one step.
struct Current {
  const Tensor& value;
  const OptimizerState& state;
  const Tensor& gradient;  ///< closed, after clipping
  bool decays;
};

/// Adam as the settings name it, muon's AdamW too; element by element, so that a shard is as good as the
/// whole.
/// @param step  0 is the first
Update adam(const Arithmetic&, const OptimizerSettings&, std::int64_t step, const Current&);
/// Of each matrix [.., rows, columns] by itself.
Update muon(const Arithmetic&, const OptimizerSettings&, const Current&);

/// Each number times the factor, in float64, rounded to the dtype.
Tensor scaled(const Tensor&, double factor);

}  // namespace assay::align
