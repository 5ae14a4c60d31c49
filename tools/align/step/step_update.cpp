// What a step does once all its micro-batches are done: the sums of gradients, their norm,
// updates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/align/step/training_step.h"
#include "assay/align/strategies/data_parallel.h"
#include "assay/align/strategies/muon.h"
#include "assay/golden/exact_sum.h"

namespace assay::align {
// Magnitudes are summed as the gradients are.
void TrainingStep::add_terms(const std::string& name, const Tensor& gradient) {
  const Tensor own = scaled(magnitudes(gradient), 1 / loss_scale());
  reduced_[name].add(shards(2) ? shards_of(name).reduce_scatter(own, name) : own);
}

ReducedGradient TrainingStep::bounded(const std::string& name, const Tensor& gradient) const {
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

// The sum is exact, so that it is the same whatever rank has which loss.
double TrainingStep::sum_losses() {
  const bool counts = mesh().coordinate(Axis::tp) == 0 && mesh().coordinate(Axis::cp) == 0;
  const std::vector<double> own = counts ? losses_ : std::vector<double>();
  losses_.clear();
  const Tensor mine({static_cast<std::int64_t>(own.size())}, std::span<const double>(own));
  ExactSum sum;
  for (const Tensor& part : ranks_.communicator().all_gather(ranks_.mesh().all_ranks(), "the losses", mine))
    sum.add(std::span<const double>(part.values()));
  return sum.round();
}

PlannedParameter TrainingStep::reduced_over(const std::string& name) const {
  PlannedParameter planned = plan_.at(name);
  if (faults_.reduction) faults_.reduction(name, planned);
  return planned;
}

void TrainingStep::reduce_gradients() {
  for (auto& [name, gradient] : gradients_) {
    const std::vector<Axis> done = shards(2) ? shards_of(name).axes() : std::vector<Axis>();
    gradient = ranks_.arithmetic().close(sum_gradient(ranks_, name, reduced_over(name), gradient, done));
    if (scaler_) gradient = scaled(gradient, 1 / scaler_->scale());
    if (faults_.gradient) faults_.gradient(moment_of_step(), name, gradient);
    if (settings_.bound_sums) reduced_[name] = bounded(name, gradient);
  }
}

double TrainingStep::norm() const {
  std::vector<Tensor> squares;
  for (const auto& [name, gradient] : gradients_) {
    const std::vector<Axis> distinct = shards(2) ? shards_of(name).axes() : std::vector<Axis>();
    double times = counts_once(mesh(), plan_.at(name), is_of_experts(name), distinct) ? 1 : 0;
    if (faults_.norm_counts) faults_.norm_counts(name, times);
    if (times == 0) continue;
    const Tensor row = gradient.reshaped({1, gradient.size()});
    const Tensor weighted = times == 1 ? row : scaled(row, times);
    squares.push_back(
        of_norm_
            ->compute("", find_operator("linear"), std::vector<NamedTensor>{{"x", row}, {"w", weighted}}, {})
            .front()
            .tensor);
  }
  squares.push_back(of_norm_->open(Tensor(of_norm_->storage(), {1, 1})));
  const Tensor own = of_norm_->add(squares, ReduceOrder::ranks);
  const auto all =
      ranks_.communicator().all_gather(ranks_.mesh().all_ranks(), "the norm of the gradients", own);
  double norm = std::sqrt(of_norm_->close(of_norm_->add(all, settings_.parallel.reduce)).value(0));
  if (faults_.norm) faults_.norm(norm);
  return norm;
}

void TrainingStep::update(double coefficient) {
  for (auto& [name, gradient] : gradients_) {
    double own = std::min(coefficient, 1.0);
    if (faults_.clip) faults_.clip(name, own);
    if (own != 1) gradient = scaled(gradient, own);
    const Tensor before = faults_.after_update ? parameters_.at(name).value : Tensor();
    if (by_muon(settings_.optimizer, name, plan_.at(name).whole)) {
      update_matrices(name, gradient);
    } else {
      update_by_elements(name, gradient);
    }
    if (faults_.after_update)
      faults_.after_update(moment_of_step(), name, before, parameters_.at(name).value);
  }
  ++updates_;
}

// Of ZeRO's shard alone.
void TrainingStep::update_by_elements(const std::string& name, const Tensor& gradient) {
  Parameter& p = parameters_.at(name);
  const bool cut = shards(1);
  const ZeroShards& shards = shards_of(name);
  OptimizerSettings optimizer = settings_.optimizer;
  std::int64_t step = updates_;
  bool is_decayed = decays(optimizer, name, p.shape);
  Tensor own = cut && !this->shards(2) ? shards.shard(gradient) : gradient;
  UpdateSite site = {optimizer, step, is_decayed, own, p.state};
  if (faults_.before_update) faults_.before_update(moment_of_step(), name, site);
  const Update next =
      adam(ranks_.arithmetic(), optimizer, step,
           {cut && !this->shards(3) ? shards.shard(p.value) : p.value, p.state, own, is_decayed});
  p.state = next.state;
  p.value = cut && !this->shards(3) ? shards.gather(next.value, p.shape, name) : next.value;
}

// What is cut, by ZeRO from some stage on, and by tensor parallel, is put together before and cut again.
void TrainingStep::update_matrices(const std::string& name, const Tensor& gradient) {
  Parameter& p = parameters_.at(name);
  OptimizerSettings optimizer = settings_.optimizer;
  std::int64_t step = updates_;
  bool is_decayed = decays(optimizer, name, p.shape);
  Tensor own_gradient = gradient;
  UpdateSite site = {optimizer, step, is_decayed, own_gradient, p.state};
  if (faults_.before_update) faults_.before_update(moment_of_step(), name, site);
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
  const Update next =
      muon(ranks_.arithmetic(), optimizer,
           {whole(p.value, 3, "value"), gathered, whole(own_gradient, 2, "gradient"), is_decayed});
  state.front().tensor = own(next.state.front().tensor, 1);
  p.value = own(next.value, 3);
}

}  // namespace assay::align
