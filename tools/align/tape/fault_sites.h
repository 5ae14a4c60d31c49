#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/model/loss.h"
#include "assay/align/model/model.h"
#include "assay/align/model/stage.h"
#include "assay/align/placement/planned_parameter.h"
#include "assay/align/ranks/ranks.h"
#include "assay/align/settings/optimizer_settings.h"

namespace assay::align {

/// When in a step something is done.
struct Moment {
  enum class Pass : std::uint8_t { forward, again, backward };  ///< again: for a recompute
  std::int64_t step = 0;
  std::int64_t micro_batch = -1;  ///< its global number; -1: of the step
  Pass pass = Pass::forward;
};

/// What the optimizer is about to do with a parameter, or a shard of it.
struct UpdateSite {
  OptimizerSettings& settings;
  std::int64_t& step;  ///< 0 is the first: of the bias correction
  bool& decays;
  Tensor& gradient;                 ///< after clipping
  std::vector<NamedTensor>& state;  ///< of the optimizer, by name
};

/// The points of a step at which a fault can get in, on one rank: each is called there and may change what it
/// is given. What is empty is done right. Where a site computes with other ranks, all of its group must.
struct FaultSites {
  using Tensors = std::vector<NamedTensor>;
  /// A call about to be computed; backward with the gradients of its outputs among the inputs.
  std::function<void(const Moment&, const Machine::Node&, Tensors& inputs, Attributes&)> before_call;
  /// What it gave; backward "grad_x" of its inputs. Outputs and gradients are open.
  std::function<void(const Moment&, const Machine::Node&, Tensors& results)> after_call;
  /// In place of a movement between ranks; backward of its adjoint. Sums are open. Nothing: it is done right.
  /// @param right  does a movement, this one or another, of the same module
  using Move = std::function<Tensor(const Movement&, const Tensor&)>;
  std::function<std::optional<Tensor>(const Moment&, const Machine::Node&, const Movement&, const Tensor&,
                                      const Move& right)>
      movement;
  /// Rows that came from the other ranks of the experts, or their gradients.
  std::function<void(const Moment&, const Machine::Node&, Tensor&)> exchanged;

  /// A parameter's piece as it is loaded before the first step.
  std::function<void(const std::string& parameter, const PlannedParameter&, Tensor& piece)> loaded;
  /// The layers that a pipeline stage computes.
  std::function<void(Stage&)> stage;
  /// Of a rank's micro-batch: "tokens", "targets", .. (forward.h).
  std::function<void(const Moment&, const std::string& name, Tensor&)> indices;
  /// Whose value the forward pass takes for a parameter's.
  std::function<std::string(const std::string& parameter)> taken_for;
  /// A parameter's piece as the forward pass takes it.
  std::function<void(const Moment&, const std::string& parameter, Tensor&)> parameter;
  /// How much a loss counts, in the loss that is shown and in the gradient.
  std::function<void(const Moment&, const Loss&, double& shown, double& in_gradient)> loss_share;
  /// What came from another stage: "activation", "gradient".
  std::function<void(const Moment&, std::string_view what, std::int64_t stage, Tensor&)> received;

  /// The gradient that a micro-batch gives, before it joins those before it; open.
  std::function<void(const Moment&, const std::string& parameter, Tensor&)> contribution;
  /// Over what the gradient is summed.
  std::function<void(const std::string& parameter, PlannedParameter&)> reduction;
  /// The reduced gradient; closed, not clipped.
  std::function<void(const Moment&, const std::string& parameter, Tensor&)> gradient;
  /// Tokens of each expert in the step, over all ranks.
  std::function<void(const std::string& layer, std::vector<std::int64_t>& own)> own_loads;
  std::function<void(const std::string& layer, std::vector<std::int64_t>& all)> loads;

  /// How often this rank counts the squares of a gradient in the norm: right is 0 or 1.
  std::function<void(const std::string& parameter, double& times)> norm_counts;
  std::function<void(double& norm)> norm;
  std::function<void(const std::string& parameter, double& coefficient)> clip;
  std::function<void(const Moment&, const std::string& parameter, UpdateSite&)> before_update;
  /// @param before  the parameter's piece, as it was
  std::function<void(const Moment&, const std::string& parameter, const Tensor& before, Tensor& after)>
      after_update;
};

struct StepSettings;

/// What a fault may look at when it is planted on a rank.
struct FaultScene {
  const Model& model;
  const StepSettings& settings;
  const Plan& plan;
  const Ranks& ranks;
};
using PlantFault = std::function<FaultSites(const FaultScene&)>;

}  // namespace assay::align
