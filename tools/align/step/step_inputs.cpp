// What a rank's step computes with: its pieces of the parameters, its tokens, its micro-batches.
#include <algorithm>

#include "assay/align/arithmetic/pieces.h"
#include "assay/align/placement/token_rows.h"
#include "assay/align/step/initial.h"
#include "assay/align/step/training_step.h"
#include "assay/align/strategies/muon.h"
#include "assay/align/strategies/redistribution.h"

namespace assay::align {

void TrainingStep::initialize() {
  const DType dtype = ranks_.arithmetic().storage();
  for (const auto& [name, planned] : plan_) {
    if (std::ranges::find(planned.holders, mesh().coordinate(Axis::pp)) == planned.holders.end()) continue;
    if (is_of_experts(name)) slots_.try_emplace(layer_of_experts(name), home_slots(model_.moe.experts));
    Tensor whole = loaded_piece(settings_, ranks_, name, planned);
    if (faults_.loaded) faults_.loaded(name, planned, whole);
    const ZeroShards& shards = shards_of(name);
    const Tensor own = this->shards(1) ? shards.shard(whole) : whole;
    const bool muon = by_muon(settings_.optimizer, name, planned.whole);
    parameters_[name] = {this->shards(3) ? own : whole, whole.shape(),
                         initial_state(muon, dtype, own.shape())};
  }
}

Tensor loaded_piece(const StepSettings& settings, const Ranks& ranks, const std::string& name,
                    const PlannedParameter& planned) {
  const Tensor given = settings.given.weights ? settings.given.weights(name)
                                              : initial_parameter(name, planned.whole, settings.seed);
  Tensor t = Tensor::from_values(ranks.arithmetic().storage(), planned.whole, given.values());
  for (const Sharding& s : planned.shardings)
    t = piece_of(t, s.placed.dim, ranks.mesh().coordinate(s.axis), ranks.mesh().size(s.axis));
  return t;
}

const ZeroShards& TrainingStep::shards_of(const std::string& name) const {
  return is_of_experts(name) ? expert_shards_ : dense_shards_;
}

Tensor TrainingStep::value_of(const std::string& name) const {
  const Parameter& p = parameters_.at(name);
  return shards(3) ? shards_of(name).gather(p.value, p.shape, name) : p.value;
}

std::map<std::string, Tensor> TrainingStep::parameters() const {
  std::map<std::string, Tensor> all;
  for (const auto& [name, parameter] : parameters_) all.emplace(name, at_home(name, value_of(name)));
  return all;
}

// The global number of this rank's micro-batch.
std::int64_t TrainingStep::number_of(std::int64_t micro_batch) const {
  return micro_batch * mesh().size(Axis::dp) + mesh().coordinate(Axis::dp);
}

Moment TrainingStep::moment_of(std::int64_t micro_batch) const {
  return {step_, number_of(micro_batch), Moment::Pass::forward};
}

// Of the whole micro-batch; `number` is global.
Sequences TrainingStep::sequences_of(std::int64_t number) const {
  const std::int64_t together = modes_.exchange_samples, first = number / together * together;
  if (together == 1 || settings_.given.are_dealt) return loaded_sequences(number);
  std::vector<Sequences> all;
  for (std::int64_t k = first; k < first + together; ++k) all.push_back(loaded_sequences(k));
  return redistributed(all, settings_.batch)[static_cast<std::size_t>(number - first)];
}

Sequences TrainingStep::loaded_sequences(std::int64_t number) const {
  if (settings_.given.sequences) return settings_.given.sequences({step_, number});
  return initial_sequences(settings_.batch, model_.vocabulary, step_ * settings_.micro_batches + number,
                           settings_.seed);
}

LossShares TrainingStep::shares_of_step() const {
  std::vector<std::int64_t> valid;
  for (std::int64_t k = 0; k < settings_.micro_batches; ++k)
    valid.push_back(indices_of("valid_targets", sequences_of(k), settings_.batch).indices().front());
  return {settings_.loss_average, settings_.batch.tokens(), valid};
}

Tensor TrainingStep::indices(const std::string& name, std::int64_t micro_batch) const {
  const std::int64_t number = number_of(micro_batch);
  const std::optional<LayerIndices> of = of_layer(name);
  if (!of) {
    Tensor own = own_positions(indices_of(name, sequences_of(number), settings_.batch));
    if (faults_.indices) faults_.indices(moment_of(micro_batch), name, own);
    return own;
  }
  switch (of->what) {
    case OfLayer::choice:
      return own_tokens(own_positions(settings_.given.routing(of->layer, {step_, number})));
    case OfLayer::other_tokens:
      return counted_by_others(of->layer, micro_batch);
    case OfLayer::slots:
      break;
  }
  return Tensor::from_indices({model_.moe.experts}, slots_of_experts(slots_.at(of->layer)));
}

// Of all tokens those of the positions that context parallel gives this rank.
Tensor TrainingStep::own_positions(const Tensor& whole) const {
  if (whole.shape().empty()) return whole;
  const std::vector<std::int64_t> all = whole.indices(), rows = token_rows(mesh(), settings_.batch.sequences,
                                                                           settings_.batch.length);
  const std::int64_t each = whole.size() / settings_.batch.tokens();
  std::vector<std::int64_t> own;
  for (const std::int64_t row : rows)
    own.insert(own.end(), all.begin() + row * each, all.begin() + (row + 1) * each);
  Shape shape = whole.shape();
  shape.front() = static_cast<std::int64_t>(rows.size());
  return Tensor::from_indices(shape, own);
}

// Of these, those that sequence parallel gives it.
Tensor TrainingStep::own_tokens(const Tensor& of_positions) const {
  if (!mesh().parallel().sp) return of_positions;
  return piece_of(of_positions, 0, mesh().coordinate(Axis::tp), mesh().size(Axis::tp));
}

}  // namespace assay::align
