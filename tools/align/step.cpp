#include "assay/align/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "assay/align/initial.h"
#include "assay/align/pieces.h"
#include "assay/align/strategies/context_parallel.h"
#include "assay/align/strategies/data_parallel.h"
#include "assay/align/strategies/muon.h"
#include "assay/align/strategies/recompute.h"
#include "assay/align/strategies/regions.h"
#include "assay/align/strategies/swap.h"
#include "assay/golden/error.h"
#include "assay/golden/exact_sum.h"

namespace assay::align {
namespace {

constexpr std::string_view router_bias = "e_score_correction_bias";

bool of_experts(const std::string& parameter) {
  return parameter.find('*') != std::string::npos;
}

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

Replay::~Replay() = default;

// A micro-batch between its forward and its backward in a stage.
struct Replay::Running {
  Running(const Ranks& ranks, Tape::ParameterSource parameters, Tape::IndexSource indices)
      : tape(ranks, std::move(parameters), std::move(indices)) {}
  Tape tape;
  std::optional<Value> x;  ///< what came from the stage before
  Forward result;
  SwapSpace swapped;
};

Replay::Replay(const Model& model, const StepSettings& settings, Communicator& communicator)
    : model_(model),
      settings_(settings),
      pipeline_(settings.parallel, model, of_each_rank(settings)),
      plan_(make_plan(model, settings.batch, settings.parallel, pipeline_, of_each_rank(settings))),
      ranks_(communicator, Mesh(settings.parallel, communicator.rank()),
             arithmetic(settings.precision, settings.round_sum)),
      dense_shards_(ranks_, false),
      expert_shards_(ranks_, true),
      of_norm_(arithmetic(of_norm(settings.precision))),
      shares_(shares_of_step()) {
  if (settings.bound_sums && ranks_.arithmetic().leading() > 0)
    throw Error("the sums of {} are exact: there is no error to bound", name(settings.precision));
  if (settings.precision == Precision::fp16) scaler_.emplace(settings.loss_scaling);
  if (communicator.size() != settings.parallel.ranks())
    throw Error("the strategy '{}' has {} ranks; there are {}", to_string(settings.parallel),
                settings.parallel.ranks(), communicator.size());
  initialize();
}

void Replay::initialize() {
  const DType dtype = ranks_.arithmetic().storage();
  for (const auto& [name, planned] : plan_) {
    if (std::ranges::find(planned.holders, mesh().coordinate(Axis::pp)) == planned.holders.end()) continue;
    const Tensor whole = piece_of_whole(name, planned);
    const ZeroShards& shards = shards_of(name);
    const Tensor own = this->shards(1) ? shards.shard(whole) : whole;
    const bool muon = by_muon(settings_.optimizer, name, planned.whole);
    parameters_[name] = {this->shards(3) ? own : whole, whole.shape(),
                         initial_state(muon, dtype, own.shape())};
  }
}

Tensor Replay::piece_of_whole(const std::string& name, const PlannedParameter& planned) const {
  const Tensor given = settings_.given.weights ? settings_.given.weights(name)
                                               : initial_parameter(name, planned.whole, settings_.seed);
  Tensor t = Tensor::from_values(ranks_.arithmetic().storage(), planned.whole, given.values());
  for (const Sharding& s : planned.shardings)
    t = piece_of(t, s.placed.dim, mesh().coordinate(s.axis), mesh().size(s.axis));
  return t;
}

const ZeroShards& Replay::shards_of(const std::string& name) const {
  return of_experts(name) ? expert_shards_ : dense_shards_;
}

Tensor Replay::value_of(const std::string& name) const {
  const Parameter& p = parameters_.at(name);
  return shards(3) ? shards_of(name).gather(p.value, p.shape, name) : p.value;
}

std::map<std::string, Tensor> Replay::parameters() const {
  std::map<std::string, Tensor> all;
  for (const auto& [name, parameter] : parameters_) all.emplace(name, value_of(name));
  return all;
}

// The global number of this rank's micro-batch.
std::int64_t Replay::number_of(std::int64_t micro_batch) const {
  return micro_batch * mesh().size(Axis::dp) + mesh().coordinate(Axis::dp);
}

// Of the whole micro-batch; `number` is global.
Sequences Replay::sequences_of(std::int64_t number) const {
  if (settings_.given.sequences) return settings_.given.sequences({step_, number});
  return initial_sequences(settings_.batch, model_.vocabulary, step_ * settings_.micro_batches + number,
                           settings_.seed);
}

LossShares Replay::shares_of_step() const {
  std::vector<std::int64_t> valid;
  for (std::int64_t k = 0; k < settings_.micro_batches; ++k)
    valid.push_back(indices_of("valid_targets", sequences_of(k), settings_.batch).indices().front());
  return {settings_.loss_average, settings_.batch.tokens(), valid};
}

// Of this rank's part of the sequences; of a router, of the tokens that sequence parallel gives it.
Tensor Replay::indices(const std::string& name, std::int64_t micro_batch) const {
  const std::int64_t number = number_of(micro_batch);
  const std::optional<std::string> router = router_of(name);
  const Tensor whole = router ? settings_.given.routing(*router, {step_, number})
                              : indices_of(name, sequences_of(number), settings_.batch);
  if (whole.shape().empty()) return whole;
  const std::vector<std::int64_t> all = whole.indices();
  const std::int64_t of_position = whole.size() / settings_.batch.length;
  std::vector<std::int64_t> own;
  for (const std::int64_t l : positions_of(mesh(), settings_.batch.length)) {
    const auto row = all.begin() + l * of_position;
    own.insert(own.end(), row, row + of_position);
  }
  Shape shape = whole.shape();
  shape.front() /= mesh().size(Axis::cp);
  const Tensor here = Tensor::from_indices(shape, own);
  const bool is_cut = router && mesh().parallel().sp;
  return is_cut ? piece_of(here, 0, mesh().coordinate(Axis::tp), mesh().size(Axis::tp)) : here;
}

void Replay::forward(const Action& action, Recorder* recorder) {
  const std::int64_t m = action.micro_batch;
  auto running = std::make_unique<Running>(
      ranks_, [this](const Machine::NamedParameter& p) { return value_of(p.name); },
      [this, m](const std::string& name) { return indices(name, m); });
  const Stage& stage = pipeline_.stages()[static_cast<std::size_t>(action.stage)];
  if (!stage.embeds)
    running->x = running->tape.input(receive("activation", m, action.stage - 1, action.stage),
                                     residual_placement(mesh()));
  running->result = align::forward(running->tape, model_, settings_.batch, stage, running->x);
  const Tape& tape = running->tape;
  if (!stage.finishes) send("activation", m, action.stage + 1, tape.tensor(running->result.x));
  add_loads(tape);
  for (const Loss& loss : running->result.losses)
    losses_.push_back(shares_.of(loss, number_of(m)) * loss.weight * tape.tensor(loss.value).value(0));
  if (recorder != nullptr) record_forward(*running, m, *recorder);
  forget_for_recompute(running->tape, settings_.parallel.recompute);
  if (settings_.parallel.swap) running->swapped.take(running->tape);
  running_[{m, action.stage}] = std::move(running);
}

void Replay::backward(const Action& action, Recorder* recorder) {
  const std::int64_t m = action.micro_batch;
  const Stage& stage = pipeline_.stages()[static_cast<std::size_t>(action.stage)];
  Running& running = *running_.at({m, action.stage});
  if (settings_.parallel.swap) running.swapped.give_back(running.tape);
  std::vector<Tape::Seed> seeds;
  if (!stage.finishes)
    seeds.push_back({running.result.x, receive("gradient", m, action.stage + 1, action.stage)});
  for (const Loss& loss : running.result.losses) {
    const double counts = loss_scale() * shares_.of(loss, number_of(m)) * loss.weight;
    seeds.push_back(
        {loss.value, Tensor::from_values(ranks_.arithmetic().storage(), {}, std::vector{counts})});
  }
  Tape::Watch watch;
  if (recorder != nullptr) {
    recorder->begin(step_, number_of(m), running.tape);
    watch = [&](const auto& node, const auto& of_outputs, const auto& of_inputs) {
      recorder->backward(running.tape, node, of_outputs, of_inputs);
    };
  }
  running.tape.backward(seeds, watch);
  if (running.x) send("gradient", m, action.stage - 1, running.tape.gradient(*running.x).value());
}

// Gradients of the weights join those of the micro-batches before.
void Replay::add_weights(const Action& action) {
  const auto at = running_.find({action.micro_batch, action.stage});
  const Tape& tape = at->second->tape;
  for (const Machine::NamedParameter& p : tape.parameters()) {
    std::optional<Tensor> gradient = tape.open_gradient(p.value);
    if (!gradient) continue;
    if (settings_.bound_sums) add_terms(p.name, *gradient);
    if (shards(2)) gradient = shards_of(p.name).reduce_scatter(*gradient, p.name);
    const auto [sum, first] = gradients_.try_emplace(p.name, *gradient);
    if (!first)
      sum->second = ranks_.arithmetic().add(std::vector{sum->second, *gradient}, ReduceOrder::ranks);
  }
  if (settings_.bound_sums && action.micro_batch == 0) {
    const auto more = align::summing_collectives(tape, settings_.round_sum);
    collectives_.insert(collectives_.end(), more.begin(), more.end());
  }
  running_.erase(at);
}

// Magnitudes are summed as the gradients are.
void Replay::add_terms(const std::string& name, const Tensor& gradient) {
  const Tensor own = scaled(magnitudes(gradient), 1 / loss_scale());
  reduced_[name].add(shards(2) ? shards_of(name).reduce_scatter(own, name) : own);
}

ReducedGradient Replay::bounded(const std::string& name, const Tensor& gradient) const {
  const PlannedParameter& p = plan_.at(name);
  const std::size_t ranks = mesh().group(p.summed_over).size() * p.holders.size();
  const SumError over_ranks =
      sum_error(gradient.dtype(), static_cast<std::int64_t>(ranks), settings_.round_sum);
  ReducedGradient result = reduced_.at(name);
  result.value = gradient;
  result.terms =
      sum_gradient(ranks_, name, p, result.terms, shards(2) ? shards_of(name).axes() : std::vector<Axis>());
  result.error = {over_ranks.n_extra + result.error.n_extra, over_ranks.n_wire, over_ranks.u_extra,
                  over_ranks.u_wire};
  return result;
}

void Replay::send(std::string_view what, std::int64_t m, std::int64_t to_stage, const Tensor& t) {
  ranks_.communicator().send(rank_of(to_stage, m), message(what, m, to_stage), t);
}

Tensor Replay::receive(std::string_view what, std::int64_t m, std::int64_t from_stage, std::int64_t stage) {
  return ranks_.communicator().receive(rank_of(from_stage, m), message(what, m, stage));
}

int Replay::rank_of(std::int64_t stage, std::int64_t m) const {
  return mesh().group({Axis::pp})[static_cast<std::size_t>(pipeline_.rank_of(stage, m))];
}

// How many tokens each expert got, for the bias of its router: every rank counts the tokens that it has.
void Replay::add_loads(const Tape& tape) {
  for (const Machine::Node& node : tape.nodes()) {
    if (node.op == nullptr || node.op->name != "router_topk") continue;
    const std::string bias = fmt::format("{}.gate.{}", node.module, router_bias);
    if (!parameters_.contains(bias)) continue;
    const Value& index = value_named(node.outputs, "index");
    std::vector<std::int64_t> load(static_cast<std::size_t>(model_.moe.experts));
    if (counts_tokens(index.placement)) {
      for (const std::int64_t e : tape.tensor(index).indices()) ++load[static_cast<std::size_t>(e)];
    }
    const auto [at, first] = loads_.try_emplace(bias, load);
    if (first) continue;
    for (std::size_t e = 0; e < load.size(); ++e) at->second[e] += load[e];
  }
}

// Of ranks with the same tokens the first.
bool Replay::counts_tokens(const Placement& placement) const {
  return std::ranges::all_of(std::array{Axis::tp, Axis::cp}, [&](Axis axis) {
    return placement[axis] != replicated || mesh().coordinate(axis) == 0;
  });
}

// The bias of a router follows the load of its experts (facts A7): before the optimizer, and without
// gradient.
void Replay::balance() {
  for (const auto& [name, load] : loads_) {
    const Tensor own = Tensor::from_indices({static_cast<std::int64_t>(load.size())}, load);
    const std::string what = "the loads of " + name;
    const Tensor all = ranks_.sum_indices(holders_of(mesh(), plan_.at(name)), what + " over pp",
                                          ranks_.sum_indices(mesh().group(dense_axes), what, own));
    Parameter& bias = parameters_.at(name);
    const Tensor updated = ranks_.arithmetic().result(
        "expert_bias_update", {{"expert_bias", value_of(name)}, {"tokens_per_expert", all}},
        {{"rate", model_.moe.bias_rate}});
    bias.value = shards(3) ? shards_of(name).shard(updated) : updated;
  }
  loads_.clear();
}

// The sum is exact, so that it is the same whatever rank has which loss.
double Replay::sum_losses() {
  const bool counts = mesh().coordinate(Axis::tp) == 0 && mesh().coordinate(Axis::cp) == 0;
  const std::vector<double> own = counts ? losses_ : std::vector<double>();
  losses_.clear();
  const Tensor mine({static_cast<std::int64_t>(own.size())}, std::span<const double>(own));
  ExactSum sum;
  for (const Tensor& part : ranks_.communicator().all_gather(all_ranks(), "the losses", mine))
    sum.add(std::span<const double>(part.values()));
  return sum.round();
}

std::vector<int> Replay::all_ranks() const {
  std::vector<int> all(static_cast<std::size_t>(settings_.parallel.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void Replay::reduce_gradients() {
  for (auto& [name, gradient] : gradients_) {
    const std::vector<Axis> done = shards(2) ? shards_of(name).axes() : std::vector<Axis>();
    gradient = ranks_.arithmetic().close(sum_gradient(ranks_, name, plan_.at(name), gradient, done));
    if (scaler_) gradient = scaled(gradient, 1 / scaler_->scale());
    if (settings_.bound_sums) reduced_[name] = bounded(name, gradient);
  }
}

double Replay::norm() const {
  std::vector<Tensor> squares;
  for (const auto& [name, gradient] : gradients_) {
    const std::vector<Axis> distinct = shards(2) ? shards_of(name).axes() : std::vector<Axis>();
    if (!counts_once(mesh(), plan_.at(name), of_experts(name), distinct)) continue;
    const Tensor row = gradient.reshaped({1, gradient.size()});
    squares.push_back(
        of_norm_->compute("", find_operator("linear"), std::vector<NamedTensor>{{"x", row}, {"w", row}}, {})
            .front()
            .tensor);
  }
  squares.push_back(of_norm_->open(Tensor(of_norm_->storage(), {1, 1})));
  const Tensor own = of_norm_->add(squares, ReduceOrder::ranks);
  const auto all = ranks_.communicator().all_gather(all_ranks(), "the norm of the gradients", own);
  return std::sqrt(of_norm_->close(of_norm_->add(all, settings_.parallel.reduce)).value(0));
}

void Replay::update(double coefficient) {
  for (auto& [name, gradient] : gradients_) {
    if (coefficient < 1) gradient = scaled(gradient, coefficient);
    if (by_muon(settings_.optimizer, name, plan_.at(name).whole)) {
      update_matrices(name, gradient);
    } else {
      update_by_elements(name, gradient);
    }
  }
  ++updates_;
}

// Of ZeRO's shard alone.
void Replay::update_by_elements(const std::string& name, const Tensor& gradient) {
  Parameter& p = parameters_.at(name);
  const bool cut = shards(1);
  const ZeroShards& shards = shards_of(name);
  const Update next = adam(ranks_.arithmetic(), settings_.optimizer, updates_,
                           {cut && !this->shards(3) ? shards.shard(p.value) : p.value, p.state,
                            cut && !this->shards(2) ? shards.shard(gradient) : gradient,
                            decays(settings_.optimizer, name, p.shape)});
  p.state = next.state;
  p.value = cut && !this->shards(3) ? shards.gather(next.value, p.shape, name) : next.value;
}

// What is cut, by ZeRO from some stage on, and by tensor parallel, is put together before and cut again.
void Replay::update_matrices(const std::string& name, const Tensor& gradient) {
  Parameter& p = parameters_.at(name);
  const MuonMatrices matrices(ranks_, plan_.at(name), settings_.optimizer.matrix);
  const auto whole = [&](const Tensor& t, std::int64_t zero, std::string_view what) {
    const std::string of = fmt::format("the {} of {}", what, name);
    return matrices.gather(shards(zero) ? shards_of(name).gather(t, p.shape, of) : t, of);
  };
  const auto own = [&](const Tensor& t, std::int64_t zero) {
    const Tensor piece = matrices.piece(t);
    return shards(zero) ? shards_of(name).shard(piece) : piece;
  };
  OptimizerState& state = p.state;
  const OptimizerState gathered = {{state.front().name, whole(state.front().tensor, 1, "momentum")}};
  const Update next = muon(ranks_.arithmetic(), settings_.optimizer,
                           {whole(p.value, 3, "value"), gathered, whole(gradient, 2, "gradient"),
                            decays(settings_.optimizer, name, p.shape)});
  state.front().tensor = own(next.state.front().tensor, 1);
  p.value = own(next.value, 3);
}

StepResult Replay::step(Recorder* recorder) {
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
        add_weights(action);
        break;
    }
  }
  StepResult result;
  result.loss = sum_losses();
  reduce_gradients();
  if (recorder != nullptr) record_parameters(*recorder);
  balance();
  result.grad_norm = norm();
  result.loss_scale = loss_scale();
  result.skipped = scaler_ && !std::isfinite(result.grad_norm);  // the norm is of all ranks
  if (!result.skipped) update(clip_coefficient(settings_.optimizer, result.grad_norm));
  if (scaler_) scaler_->update(result.skipped);
  if (recorder != nullptr) record_updates(*recorder);
  ++step_;
  return result;
}

void Replay::record_forward(const Running& running, std::int64_t micro_batch, Recorder& recorder) const {
  recorder.begin(step_, number_of(micro_batch), running.tape);
  recorder.forward(running.tape);
  for (const Loss& loss : running.result.losses) recorder.loss(loss.name, running.tape.tensor(loss.value));
}

Tensor Replay::whole_piece(const std::string& name, const Tensor& t) const {
  const Shape& shape = parameters_.at(name).shape;
  return t.shape() == shape ? t : shards_of(name).gather(t, shape, name);
}

void Replay::record_parameters(Recorder& recorder) const {
  for (const auto& [name, parameter] : parameters_)
    recorder.parameter({Phase::forward, "param"}, name, plan_.at(name), value_of(name));
  for (const auto& [name, gradient] : gradients_)
    recorder.parameter({Phase::backward, "grad"}, name, plan_.at(name), whole_piece(name, gradient));
}

void Replay::record_updates(Recorder& recorder) const {
  for (const auto& [name, parameter] : parameters_) {
    const PlannedParameter& planned = plan_.at(name);
    recorder.parameter({Phase::optimizer, "param"}, name, planned, value_of(name));
    if (!gradients_.contains(name)) continue;
    for (const NamedTensor& state : parameter.state)
      recorder.parameter({Phase::optimizer, "state", state.name}, name, planned,
                         whole_piece(name, state.tensor));
  }
}

}  // namespace assay::align
