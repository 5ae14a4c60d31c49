#include "assay/align/step/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/align/strategies/data_parallel.h"
#include "assay/align/strategies/muon.h"
#include "assay/align/strategies/recompute.h"
#include "assay/align/strategies/regions.h"
#include "assay/align/strategies/swap.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::int64_t of_each_rank(const StepSettings& s) {
  if (s.micro_batches % s.parallel.dp != 0)
    throw Error("{} micro-batches do not divide over dp = {}; expected a multiple", s.micro_batches,
                s.parallel.dp);
  return s.micro_batches / s.parallel.dp;
}

// One after the other, a million squares lose three digits in float32, which no device does, whose sums are
// trees; exact sums lose nothing.
Precision of_norm(Precision precision) {
  return precision == Precision::exact ? Precision::exact : Precision::fp64;
}

std::string message(std::string_view what, std::int64_t micro_batch, std::int64_t stage) {
  return fmt::format("the {} of micro-batch {} for stage {}", what, micro_batch, stage);
}

}  // namespace

void check(const Model& model, const StepSettings& settings) {
  const Pipeline pipeline(settings.parallel, model, of_each_rank(settings));
  make_plan(model, settings.batch, settings.parallel, pipeline, of_each_rank(settings));
}

TrainingStep::~TrainingStep() = default;

// A micro-batch between its forward and its backward in a stage.
struct TrainingStep::Running {
  Running(const Ranks& ranks, Tape::ParameterSource parameters, Tape::IndexSource indices,
          const FaultSites& faults, const Moment& now)
      : tape(ranks, std::move(parameters), std::move(indices), &faults, now) {}
  Tape tape;
  std::optional<Value> x;  ///< what came from the stage before
  Forward result;
  SwapSpace swapped;
  std::map<std::string, ExpertRows> rows;  ///< where it is recorded
};

TrainingStep::TrainingStep(const Model& model, const StepSettings& settings, Communicator& communicator)
    : model_(model),
      settings_(settings),
      modes_(modes(settings.batch, model, settings.parallel)),
      pipeline_(settings.parallel, model, of_each_rank(settings)),
      plan_(make_plan(model, settings.batch, settings.parallel, pipeline_, of_each_rank(settings))),
      ranks_(communicator, Mesh(settings.parallel, communicator.rank()),
             arithmetic(settings.precision, settings.round_sum)),
      dense_shards_(ranks_, false),
      expert_shards_(ranks_, true),
      of_norm_(arithmetic(of_norm(settings.precision))),
      faults_(settings.fault ? settings.fault({model_, settings_, plan_, ranks_}) : FaultSites()),
      shares_(shares_of_step()) {
  if (settings.bound_sums && ranks_.arithmetic().leading() > 0)
    throw Error("the sums of {} are exact: there is no error to bound", name(settings.precision));
  if (settings.batch.is_routed && modes_.exchange_samples > 1 && !settings.given.are_dealt)
    throw Error(
        "--routing: the choices are of recorded samples, which redistribute=1 would deal out anew; give the "
        "dump's --tokens too");
  if (settings.precision == Precision::fp16) scaler_.emplace(settings.loss_scaling);
  if (communicator.size() != settings.parallel.ranks())
    throw Error("the strategy '{}' has {} ranks; there are {}", to_string(settings.parallel),
                settings.parallel.ranks(), communicator.size());
  initialize();
}

Stage TrainingStep::stage_of(const Action& action) const {
  Stage stage = pipeline_.stages()[static_cast<std::size_t>(action.stage)];
  if (faults_.stage) faults_.stage(stage);
  return stage;
}

void TrainingStep::forward(const Action& action, Recorder* recorder) {
  const std::int64_t m = action.micro_batch;
  count_ahead(action);
  auto running = std::make_unique<Running>(
      ranks_, [this, m](const Machine::NamedParameter& p) { return used(p.name, m); },
      [this, m](const std::string& name) { return indices(name, m); }, faults_, moment_of(m));
  const Stage stage = stage_of(action);
  if (!stage.embeds)
    running->x = running->tape.input(receive("activation", m, action.stage - 1, action.stage),
                                     residual_placement(mesh()));
  running->result = align::forward(running->tape, model_, settings_.batch, stage, running->x);
  const Tape& tape = running->tape;
  if (!stage.finishes) send("activation", m, action.stage + 1, tape.tensor(running->result.x));
  add_loads(tape);
  for (const Loss& loss : running->result.losses)
    losses_.push_back(share_of(loss, m).shown * loss.weight * tape.tensor(loss.value).value(0));
  if (recorder != nullptr) record_forward(*running, m, *recorder);
  forget_for_recompute(running->tape, settings_.parallel.recompute);
  if (settings_.parallel.swap) running->swapped.take(running->tape);
  running_[{m, action.stage}] = std::move(running);
}

void TrainingStep::backward(const Action& action, Recorder* recorder) {
  const std::int64_t m = action.micro_batch;
  const Stage stage = stage_of(action);
  Running& running = *running_.at({m, action.stage});
  if (settings_.parallel.swap) running.swapped.give_back(running.tape);
  std::vector<Tape::Seed> seeds;
  if (!stage.finishes)
    seeds.push_back({running.result.x, receive("gradient", m, action.stage + 1, action.stage)});
  for (const Loss& loss : running.result.losses) {
    const double counts = loss_scale() * share_of(loss, m).in_gradient * loss.weight;
    seeds.push_back(
        {loss.value, Tensor::from_values(ranks_.arithmetic().storage(), {}, std::vector{counts})});
  }
  Tape::Watch watch;
  if (recorder != nullptr) {
    recorder->begin(step_, number_of(m), running.tape, running.rows);
    watch = [&](const auto& node, const auto& of_outputs, const auto& of_inputs) {
      recorder->backward(running.tape, node, of_outputs, of_inputs);
    };
  }
  running.tape.backward(seeds, watch);
  if (running.x) send("gradient", m, action.stage - 1, running.tape.gradient(*running.x).value());
}

Tensor TrainingStep::used(const std::string& name, std::int64_t micro_batch) const {
  Tensor value = value_of(faults_.taken_for ? faults_.taken_for(name) : name);
  if (faults_.parameter) faults_.parameter(moment_of(micro_batch), name, value);
  return value;
}

TrainingStep::LossShare TrainingStep::share_of(const Loss& loss, std::int64_t micro_batch) const {
  const double right = shares_.of(loss, number_of(micro_batch));
  LossShare share = {right, right};
  if (faults_.loss_share) faults_.loss_share(moment_of(micro_batch), loss, share.shown, share.in_gradient);
  return share;
}

void TrainingStep::accumulate(Gradients& sums, const std::string& name, const Tensor& gradient) const {
  const auto [sum, first] = sums.try_emplace(name, gradient);
  if (!first) sum->second = ranks_.arithmetic().add(std::vector{sum->second, gradient}, ReduceOrder::ranks);
}

// Gradients of the weights join those of the micro-batches before.
void TrainingStep::add_weights(const Action& action, const Recorder* recorder) {
  const auto at = running_.find({action.micro_batch, action.stage});
  const Tape& tape = at->second->tape;
  for (const Machine::NamedParameter& p : tape.parameters()) {
    std::optional<Tensor> gradient = tape.open_gradient(p.value);
    if (!gradient) continue;
    if (faults_.contribution) faults_.contribution(moment_of(action.micro_batch), p.name, *gradient);
    if (settings_.bound_sums) add_terms(p.name, *gradient);
    if (shards(2) && recorder != nullptr) accumulate(unreduced_, p.name, *gradient);
    if (shards(2)) gradient = shards_of(p.name).reduce_scatter(*gradient, p.name);
    accumulate(gradients_, p.name, *gradient);
  }
  if (settings_.bound_sums && action.micro_batch == 0) {
    const auto more = align::summing_collectives(tape, settings_.round_sum);
    collectives_.insert(collectives_.end(), more.begin(), more.end());
  }
  running_.erase(at);
}

void TrainingStep::send(std::string_view what, std::int64_t m, std::int64_t to_stage, const Tensor& t) {
  ranks_.communicator().send(rank_of(to_stage, m), message(what, m, to_stage), t);
}

Tensor TrainingStep::receive(std::string_view what, std::int64_t m, std::int64_t from_stage,
                             std::int64_t stage) {
  Tensor t = ranks_.communicator().receive(rank_of(from_stage, m), message(what, m, stage));
  if (faults_.received) faults_.received(moment_of(m), what, stage, t);
  return t;
}

int TrainingStep::rank_of(std::int64_t stage, std::int64_t m) const {
  return mesh().group({Axis::pp})[static_cast<std::size_t>(pipeline_.rank_of(stage, m))];
}

StepResult TrainingStep::step(Recorder* recorder) {
  shares_ = shares_of_step();
  gradients_.clear();
  reduced_.clear();
  collectives_.clear();
  for (const Action& action : pipeline_.actions(mesh().coordinate(Axis::pp))) {
    switch (action.kind) {
      case Action::Kind::forward:
        forward(action, recorder);
        break;
      case Action::Kind::backward:
        backward(action, recorder);
        break;
      case Action::Kind::weights:
        add_weights(action, recorder);
        break;
    }
  }
  StepResult result;
  result.loss = sum_losses();
  if (recorder != nullptr) record_unreduced(*recorder);
  reduce_gradients();
  if (recorder != nullptr) record_parameters(*recorder);
  sum_loads();
  update_router_biases();
  result.grad_norm = norm();
  result.loss_scale = loss_scale();
  result.skipped = scaler_ && !std::isfinite(result.grad_norm);  // the norm is of all ranks
  if (!result.skipped) update(clip_coefficient(settings_.optimizer, result.grad_norm));
  if (scaler_) scaler_->update(result.skipped);
  if (recorder != nullptr) {
    recorder->scalar(Phase::forward, "loss", result.loss);
    recorder->scalar(Phase::backward, "grad_norm", result.grad_norm);
    record_updates(*recorder);
  }
  place_experts();
  loads_.clear();
  ++step_;
  return result;
}

void TrainingStep::record_forward(Running& running, std::int64_t micro_batch, Recorder& recorder) const {
  const std::int64_t number = number_of(micro_batch);
  running.rows = expert_rows(ranks_, running.tape, number, settings_.batch);
  recorder.begin(step_, number, running.tape, running.rows);
  recorder.forward(running.tape);
  for (const Loss& loss : running.result.losses) recorder.loss(loss.name, running.tape.tensor(loss.value));
}

Tensor TrainingStep::whole_piece(const std::string& name, const Tensor& t, std::int64_t cut_from) const {
  return shards(cut_from) ? shards_of(name).gather(t, parameters_.at(name).shape, name) : t;
}

// Shares along no dimension of the mesh are summed before, and exact ones, which are not rounded.
void TrainingStep::record_unreduced(Recorder& recorder) {
  const bool is_exact = ranks_.arithmetic().leading() > 0;
  for (const auto& [name, gradient] : shards(2) ? unreduced_ : gradients_) {
    const PlannedParameter& planned = plan_.at(name);
    const std::string what = fmt::format("the share of the gradient of {}", name);
    const auto along = is_exact ? std::nullopt : shares_along(planned, settings_.parallel);
    Tensor share = ranks_.sum(holders_of(mesh(), planned), what + " over pp", gradient);
    if (!along) share = ranks_.sum(mesh().group(planned.summed_over), what, share);
    share = ranks_.arithmetic().close(share);
    recorder.unreduced(name, planned, at_home(name, scaler_ ? scaled(share, 1 / scaler_->scale()) : share),
                       along.value_or(std::vector<Axis>()));
  }
  unreduced_.clear();
}

void TrainingStep::record_parameters(Recorder& recorder) const {
  for (const auto& [name, parameter] : parameters_)
    recorder.parameter({Phase::forward, "param"}, name, plan_.at(name), at_home(name, value_of(name)));
  for (const auto& [name, gradient] : gradients_)
    recorder.parameter({Phase::backward, "grad"}, name, plan_.at(name),
                       at_home(name, whole_piece(name, gradient, 2)));
}

void TrainingStep::record_updates(Recorder& recorder) const {
  for (const auto& [name, parameter] : parameters_) {
    const PlannedParameter& planned = plan_.at(name);
    recorder.parameter({Phase::optimizer, "param"}, name, planned, at_home(name, value_of(name)));
    if (!gradients_.contains(name)) continue;
    for (const NamedTensor& state : parameter.state)
      recorder.parameter({Phase::optimizer, "state", state.name}, name, planned,
                         at_home(name, whole_piece(name, state.tensor, 1)));
  }
}

}  // namespace assay::align
