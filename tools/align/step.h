#pragma once

#include <map>

#include "assay/align/forward.h"
#include "assay/align/recorder.h"
#include "assay/align/tape.h"

namespace assay::align {

/// AdamW with decoupled decay of everything but vectors, after clipping by the norm of all gradients
/// (Megatron-LM's order and defaults; TeleChat3's betas and decay).
struct OptimizerSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, max_norm = 1;
};

struct StepSettings {
  Batch batch;
  std::int64_t micro_batches = 1;
  Level level = Level::fp64;  ///< or report: float32
  OptimizerSettings optimizer = {};
};

struct StepResult {
  double loss = 0;       ///< mean over the micro-batches
  double grad_norm = 0;  ///< before clipping
};

/// Training steps of a model on a single device.
class Replay {
 public:
  Replay(const Model& model, const StepSettings& settings) : model_(model), settings_(settings) {}
  /// The next one. What it computes goes to the recorder, if there is one.
  StepResult step(Recorder*);

  struct Parameter {
    Tensor value, exp_avg, exp_avg_sq;
  };
  const std::map<std::string, Parameter>& parameters() const { return parameters_; }

 private:
  using Gradients = std::map<std::string, Tensor>;
  DType dtype() const { return settings_.level == Level::fp64 ? DType::float64 : DType::float32; }
  double micro_batch(std::int64_t index, Gradients&, Recorder*);
  void record_forward(const Tape&, const StepLosses&, std::int64_t index, Recorder&) const;
  void accumulate(const Tape&, Gradients&) const;
  void add_loads(const Tape&);
  double clip(Gradients&) const;
  void update(const Gradients&);
  void balance();
  Tensor golden(std::string_view op, const std::vector<NamedTensor>& inputs, const Attributes&,
                std::string_view output) const;

  const Model model_;
  const StepSettings settings_;
  std::int64_t step_ = 0;
  std::map<std::string, Parameter> parameters_;
  std::map<std::string, Tensor> loads_;  ///< tokens of each expert in the step, by the router's bias
};

}  // namespace assay::align
