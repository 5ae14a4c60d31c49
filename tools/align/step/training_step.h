#pragma once

#include <map>
#include <memory>

#include "assay/align/step/loss_scaling.h"
#include "assay/align/step/loss_shares.h"
#include "assay/align/step/optimizer.h"
#include "assay/align/step/plan.h"
#include "assay/align/step/recorder.h"
#include "assay/align/step/sources.h"
#include "assay/align/step/sum_errors.h"
#include "assay/align/strategies/expert_placement.h"
#include "assay/align/strategies/zero.h"
#include "assay/align/tape/tape.h"

namespace assay::align {

struct StepSettings {
  Batch batch = {};
  std::int64_t micro_batches = 1;  ///< of a step, over all ranks of dp
  Precision precision = Precision::fp64;
  RoundSum round_sum = RoundSum::each;  ///< of bf16, fp16 and fp8
  LossScaling loss_scaling = {};        ///< of fp16
  bool bound_sums = false;              ///< find out what sums over ranks can be off; not of exact
  OptimizerSettings optimizer = {};
  LossAverage loss_average = LossAverage::micro_batches;
  Parallel parallel = {};
  std::int64_t seed = 0;  ///< of weights and tokens that are drawn
  Sources given = {};     ///< with routing if the batch is routed
  PlantFault fault = {};  ///< what is to go wrong
  Summation sums = {};    ///< how operators add up; exact sums have no order
};

struct StepResult {
  double loss = 0;
  double grad_norm = 0;  ///< before clipping
  double loss_scale = 1;
  bool skipped = false;  ///< for a gradient that is not finite in fp16: no parameter was updated
};

/// @throws Error  if the strategy, the model and the batch do not go together, with the reason
void check(const Model&, const StepSettings&);

/// The piece of a parameter, given or drawn, that a rank begins with.
Tensor loaded_piece(const StepSettings&, const Ranks&, const std::string& name, const PlannedParameter&);

/// Training steps of a model, as one rank does them with the others.
class TrainingStep {
 public:
  /// @throws Error  as check does, and if there are other than the strategy's ranks
  TrainingStep(const Model&, const StepSettings&, Communicator&);
  ~TrainingStep();
  /// The next one; all ranks get the same result. What this rank computes goes to the recorder, if there is
  /// one.
  StepResult step(Recorder*);

  /// This rank's pieces, experts by their numbers. All ranks must call it: what ZeRO has cut is gathered.
  std::map<std::string, Tensor> parameters() const;
  /// Of the last step, after clipping: this rank's pieces, or its flat shards where ZeRO cuts gradients, then
  /// of experts by slot.
  const std::map<std::string, Tensor>& gradients() const { return gradients_; }
  const Plan& plan() const { return plan_; }

  /// Of the last step, if its sums were bounded: the gradients that this rank updates with.
  const std::map<std::string, ReducedGradient>& reduced_gradients() const { return reduced_; }
  /// And the collectives of micro-batch 0 on this rank that sum activations or their gradients.
  const std::vector<SummingCollective>& summing_collectives() const { return collectives_; }
  const Mesh& mesh() const { return ranks_.mesh(); }

 private:
  struct Parameter {
    Tensor value;  ///< of zero=3 the shard
    Shape shape;   ///< of this rank's piece
    OptimizerState state;
  };
  using Gradients = std::map<std::string, Tensor>;
  struct Running;

  void initialize();
  Tensor value_of(const std::string& name) const;
  Tensor used(const std::string& name, std::int64_t micro_batch) const;
  struct LossShare {
    double shown, in_gradient;
  };
  LossShare share_of(const Loss&, std::int64_t micro_batch) const;
  Tensor indices(const std::string& name, std::int64_t micro_batch) const;
  Tensor own_positions(const Tensor&) const;
  Tensor own_tokens(const Tensor&) const;
  Sequences sequences_of(std::int64_t number) const;
  Sequences loaded_sequences(std::int64_t number) const;
  std::int64_t number_of(std::int64_t micro_batch) const;
  Moment moment_of(std::int64_t micro_batch) const;
  Moment moment_of_step() const { return {step_, -1, Moment::Pass::backward}; }
  LossShares shares_of_step() const;
  const ZeroShards& shards_of(const std::string& name) const;
  bool shards(std::int64_t stage) const { return settings_.parallel.zero >= stage; }

  Stage stage_of(const Action&) const;
  void forward(const Action&, Recorder*);
  void backward(const Action&, Recorder*);
  void accumulate(Gradients& sums, const std::string& name, const Tensor&) const;
  void add_weights(const Action&, const Recorder*);
  void add_terms(const std::string& name, const Tensor& gradient);
  ReducedGradient bounded(const std::string& name, const Tensor& gradient) const;
  PlannedParameter reduced_over(const std::string& name) const;
  void send(std::string_view what, std::int64_t micro_batch, std::int64_t to_stage, const Tensor&);
  Tensor receive(std::string_view what, std::int64_t micro_batch, std::int64_t from_stage,
                 std::int64_t stage);
  int rank_of(std::int64_t stage, std::int64_t micro_batch) const;
  using Loads = std::map<std::string, std::vector<std::int64_t>>;  ///< tokens of each expert, by layer
  Loads loads_of(const Tape&, std::string_view op) const;
  void add_loads(const Tape&);
  bool counts_tokens(const MeshPlacement&) const;
  void sum_loads();
  void update_router_biases();
  bool moves_experts() const;
  Tensor at_home(const std::string& name, const Tensor& piece) const;
  void place_experts();
  void count_ahead(const Action&);
  Tensor counted_by_others(const std::string& layer, std::int64_t micro_batch) const;
  double sum_losses();
  void reduce_gradients();
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  double norm() const;
  void update(double coefficient);
  void update_by_elements(const std::string& name, const Tensor& gradient);
  void update_matrices(const std::string& name, const Tensor& gradient);
  void record_forward(Running&, std::int64_t micro_batch, Recorder&) const;
  /// @param cut_from  the zero=N from which on it is a shard
  Tensor whole_piece(const std::string& name, const Tensor&, std::int64_t cut_from) const;
  void record_unreduced(Recorder&);
  void record_parameters(Recorder&) const;
  void record_updates(Recorder&) const;

  const Model model_;
  const StepSettings settings_;
  const Modes modes_;
  const Pipeline pipeline_;
  const Plan plan_;
  const Ranks ranks_;
  const ZeroShards dense_shards_, expert_shards_;
  const std::shared_ptr<const Arithmetic> of_norm_;
  const FaultSites faults_;
  std::optional<LossScaler> scaler_;
  std::int64_t step_ = 0, updates_ = 0;
  std::map<std::string, Parameter> parameters_;  ///< of experts by slot
  std::map<std::string, Slots> slots_;           ///< where experts are, by layer

  // of the step that is running
  LossShares shares_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Running>> running_;  ///< micro-batch, stage
  Gradients gradients_;  ///< open, in the end closed
  Gradients unreduced_;  ///< where they are recorded and ZeRO reduces those of each micro-batch
  std::map<std::string, ReducedGradient> reduced_;
  std::vector<SummingCollective> collectives_;
  Loads loads_;
  std::map<std::int64_t, Loads> counted_;  ///< ahead, by micro-batch
  std::vector<double> losses_;             ///< of this rank's stages, weighted
};

}  // namespace assay::align
