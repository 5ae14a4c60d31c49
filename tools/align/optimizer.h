#pragma once

#include "assay/align/arithmetic.h"

namespace assay::align {

/// AdamW with decoupled decay of everything but vectors, after clipping by the norm of all gradients
/// (Megatron-LM's order and defaults; TeleChat3's betas and decay).
struct OptimizerSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, max_norm = 1;
};

/// What an optimizer knows of a parameter, or of a shard of it.
struct OptimizerState {
  Tensor exp_avg, exp_avg_sq;
};

struct Update {
  Tensor value;
  OptimizerState state;
};

/// @param gradient  closed, after clipping
/// @param step      0 is the first
/// @param decays    whether weight decay is for this parameter
Update adamw(const Arithmetic&, const OptimizerSettings&, std::int64_t step, bool decays, const Tensor& value,
             const OptimizerState&, const Tensor& gradient);

/// Megatron-LM: vectors do not decay.
bool decays(const Shape& parameter);

/// What clipping by the global norm multiplies gradients with (Megatron-LM, torch): max_norm / (norm + 1e-6)
/// where that is less than 1.
double clip_coefficient(const OptimizerSettings&, double norm);

/// Each number times the factor, in float64, rounded to the dtype.
Tensor scaled(const Tensor&, double factor);

}  // namespace assay::align
