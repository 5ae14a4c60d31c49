#pragma once

#include <cstdint>

namespace assay::align {

/// fp16's scale of the loss (Megatron-LM core/optimizer/grad_scaler.py, DynamicGradScaler, and its defaults):
/// powers of two, so that scaling is exact but where it under- or overflows.
struct LossScaling {
  double initial = 0x1p32, least = 1;
  double growth = 2, backoff = 0.5;
  std::int64_t interval = 1000;  ///< steps without overflow behind which the scale grows
  std::int64_t hysteresis = 2;   ///< steps with overflow since it last grew behind which it shrinks
};

/// The scale from step to step.
class LossScaler {
 public:
  /// @throws Error  unless the scales and factors are powers of two
  explicit LossScaler(const LossScaling&);
  double scale() const { return scale_; }
  /// Behind a step, which is left out if any gradient was not finite.
  void update(bool overflow);

 private:
  const LossScaling settings_;
  double scale_;
  std::int64_t finite_ = 0, tolerated_;
};

}  // namespace assay::align
