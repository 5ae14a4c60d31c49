#include "assay/align/planning/estimate.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "assay/align/model/modes.h"
#include "assay/align/step/plan.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

double number(std::int64_t n) {
  return static_cast<double>(n);
}

// Ranks along which ZeRO cuts what all of them would hold: cp and dp, of experts edp.
double copies(const Parallel& p, bool of_experts) {
  return of_experts ? number(p.tp * p.cp * p.dp) / number(p.etp * p.ep) : number(p.cp * p.dp);
}

// The strategy as far as a layer of a micro-batch shows it.
Parallel within_stage(const Parallel& p) {
  Parallel q;
  q.tp = p.tp, q.sp = p.sp, q.cp = p.cp, q.context = p.context;
  q.ep = p.ep, q.etp = p.etp, q.dispatch = p.dispatch, q.node = p.node;
  const std::int64_t experts = p.ep * p.etp;
  q.dp = experts / std::gcd(experts, p.tp * p.cp);
  return q;
}

// When each action ends, if each begins as soon as its rank and what it waits for allow.
double end_of_schedule(const Pipeline& pipeline, std::int64_t ranks, double pass_on,
                       const std::function<double(const Action&)>& seconds) {
  using Kind = Action::Kind;
  const auto last = static_cast<std::int64_t>(pipeline.stages().size()) - 1;
  std::map<std::pair<std::int64_t, std::int64_t>, double> forward, backward;  // by stage, micro-batch
  std::vector<std::vector<Action>> actions;
  for (std::int64_t r = 0; r < ranks; ++r) actions.push_back(pipeline.actions(r));
  std::vector<std::size_t> next(actions.size());
  std::vector<double> now(actions.size());
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t r = 0; r < actions.size(); ++r) {
      for (; next[r] < actions[r].size(); ++next[r], goes_on = true) {
        const Action& a = actions[r][next[r]];
        double begin = now[r];
        const bool is_forward = a.kind == Kind::forward,
                   is_first = is_forward ? a.stage == 0 : a.stage == last;
        if (a.kind != Kind::weights && !is_first) {
          const auto& before = is_forward ? forward : backward;
          const auto given = before.find({a.stage + (is_forward ? -1 : 1), a.micro_batch});
          if (given == before.end()) break;
          begin = std::max(begin, given->second + pass_on);
        }
        now[r] = begin + seconds(a);
        if (a.kind != Kind::weights) (is_forward ? forward : backward)[{a.stage, a.micro_batch}] = now[r];
      }
    }
  }
  return *std::ranges::max_element(now);
}

}  // namespace

Memory memory_of(const Parallel& p, const Storage& storage, double dense, double experts) {
  Memory m;
  for (const auto& [elements, n] : {std::pair{dense, copies(p, false)}, {experts, copies(p, true)}}) {
    m.parameters += storage.parameter * elements / (p.zero >= 3 ? n : 1);
    m.gradients += storage.gradient * elements / (p.zero >= 2 ? n : 1);
    m.states += storage.states * elements / (p.zero >= 1 ? n : 1);
  }
  return m;
}

std::int64_t Training::micro_batches(const Parallel& p) const {
  const std::int64_t together = p.dp * batch.sequences;
  if (sequences % together != 0)
    throw Error("{} sequences of a step do not divide over dp {} times {} of a micro-batch", sequences, p.dp,
                batch.sequences);
  return sequences / together;
}

const Block& Blocks::layer(const Parallel& p, bool has_experts) {
  const std::int64_t k = has_experts ? training_.model.dense_layers : 0;
  return of(p, {k, k + 1, false, false}, has_experts);
}

const Block& Blocks::head(const Parallel& p) {
  const std::int64_t layers = training_.model.layers;
  return of(p, {layers, layers, false, true}, training_.model.losses.mtp_depth > 0);
}

const Block& Blocks::of(const Parallel& parallel, const Stage& stage, bool has_experts) {
  Parallel p = within_stage(parallel);
  if (!has_experts) p.ep = p.etp = p.dp = p.node = 1, p.dispatch = Dispatch::alltoall;
  const std::int64_t which = stage.embeds ? 0 : stage.finishes ? 1 : 2 + stage.first;
  const Key key = {which, p.tp,  p.sp, p.cp,   static_cast<std::int64_t>(p.context),
                   p.ep,  p.etp, p.dp, p.node, static_cast<std::int64_t>(p.dispatch)};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_
      .emplace(key, measure(training_.model, training_.batch, p, stage, training_.devices, training_.storage))
      .first->second;
}

const std::vector<Blocks::Held>& Blocks::held(const Pipeline& pipeline, const Parallel& p,
                                              std::int64_t micro_batches, std::int64_t rank) {
  const Key key = {static_cast<std::int64_t>(p.schedule), p.pp, p.vpp, micro_batches, rank};
  const auto known = held_.find(key);
  if (known != held_.end()) return known->second;
  std::vector<Held>& most = held_[key];
  Held now;
  const auto is_within = [](const Held& a, const Held& b) {
    return std::ranges::all_of(a, [&](const auto& of) {
      const auto other = b.find(of.first);
      return of.second <= (other == b.end() ? 0 : other->second);
    });
  };
  for (const Action& a : pipeline.actions(rank)) {
    if (a.kind == Action::Kind::weights) --now[a.stage];
    if (a.kind != Action::Kind::forward) continue;
    ++now[a.stage];
    if (std::ranges::any_of(most, [&](const Held& other) { return is_within(now, other); })) continue;
    std::erase_if(most, [&](const Held& other) { return is_within(other, now); });
    most.push_back(now);
  }
  return most;
}

StagedModel::StagedModel(Blocks& blocks, const Parallel& parallel, const std::vector<StageLayers>& layers)
    : parallel_(parallel),
      blocks_(blocks),
      micro_batches_(blocks.training().micro_batches(parallel)),
      devices_(blocks.training().devices),
      storage_(blocks.training().storage),
      pipeline_(parallel, blocks.training().model, micro_batches_) {
  const Training& t = blocks.training();
  check_strategy(t.model, t.batch, parallel);
  check_modes(t.model, modes_of(t.model, parallel), parallel, t.sequences / t.batch.sequences);
  for (const Stage& stage : pipeline_.stages())
    work_.push_back(work_of(stage, layers.empty() ? layers_of(stage) : layers[work_.size()]));
  output_ = blocks.layer(parallel, t.model.has_experts(t.model.layers - 1)).output;
}

StageLayers StagedModel::layers_of(const Stage& stage) const {
  const Model& m = blocks_.training().model;
  const std::int64_t first_with_experts = m.moe.experts > 0 ? m.dense_layers : m.layers;
  const std::int64_t all = stage.end - stage.first;
  const std::int64_t dense = std::clamp(first_with_experts - stage.first, std::int64_t{0}, all);
  StageLayers layers = {};
  const auto mode = static_cast<std::size_t>(parallel_.recompute);
  layers[0][mode] = dense;
  layers[1][mode] = all - dense;
  return layers;
}

StagedModel::Work StagedModel::work_of(const Stage& stage, const StageLayers& layers) const {
  Work w;
  const auto add = [&](std::int64_t count, const Block& b, std::size_t mode) {
    const auto what = static_cast<Recompute>(mode);
    const double compute = b.flops / devices_.flops, n = number(count);
    const double forward = compute + b.sending_forward;
    w.forward += n * forward;
    w.weights += n * compute;
    w.backward += n * (b.seconds(what, devices_) - forward - compute);
    w.compute += n * 3 * compute;
    w.again += n * (b.seconds(what, devices_) - b.seconds(Recompute::none, devices_));
    w.kept += n * b.kept[mode];
    w.again_kept = std::max(w.again_kept, b.kept[0] - b.kept[mode]);
    w.dense += n * b.dense;
    w.experts += n * b.experts;
    w.embedding = std::max(w.embedding, b.embedding);
    for (const auto& [axis, seconds] : b.sending) w.sending[axis] += n * seconds;
  };
  const auto uniform = static_cast<std::size_t>(parallel_.recompute);
  if (stage.embeds) add(1, blocks_.embedding(parallel_), uniform);
  for (const bool has_experts : {false, true}) {
    for (std::size_t mode = 0; mode < Block::modes; ++mode) {
      const std::int64_t count = layers[has_experts ? 1 : 0][mode];
      if (count > 0) add(count, blocks_.layer(parallel_, has_experts), mode);
    }
  }
  if (stage.finishes) add(1, blocks_.head(parallel_), uniform);
  return w;
}

std::vector<std::int64_t> StagedModel::stages_of(std::int64_t rank) const {
  std::vector<std::int64_t> all;
  for (std::int64_t s = 0; s < static_cast<std::int64_t>(work_.size()); ++s) {
    if (pipeline_.rank_of(s, 0) == rank || pipeline_.rank_of(s, micro_batches_ - 1) == rank) all.push_back(s);
  }
  return all;
}

StagedModel::Elements StagedModel::elements(std::int64_t rank) const {
  double dense = 0, experts = 0, embedding = 0;
  for (const std::int64_t s : stages_of(rank)) {
    const Work& w = work_[static_cast<std::size_t>(s)];
    dense += w.dense;
    experts += w.experts;
    embedding = std::max(embedding, w.embedding);
  }
  return {dense + embedding, experts};
}

Memory StagedModel::memory(std::int64_t rank) const {
  const auto [dense, experts] = elements(rank);
  Memory m = memory_of(parallel_, storage_, dense, experts);
  for (const std::int64_t s : stages_of(rank))
    m.again = std::max(m.again, work_[static_cast<std::size_t>(s)].again_kept);
  for (const Blocks::Held& at : blocks_.held(pipeline_, parallel_, micro_batches_, rank)) {
    double now = 0;
    for (const auto& [stage, count] : at) now += number(count) * work_[static_cast<std::size_t>(stage)].kept;
    m.activations = std::max(m.activations, now);
  }
  return m;
}

Memory StagedModel::memory() const {
  Memory most;
  for (std::int64_t r = 0; r < parallel_.pp; ++r) {
    const Memory m = memory(r);
    if (!(m.all() <= most.all())) most = m;
  }
  return most;
}

double StagedModel::seconds_of(std::int64_t rank) const {
  double seconds = 0;
  const std::vector<std::int64_t> stages = stages_of(rank);
  // Of DualPipe a rank has two stages, each with half of the micro-batches.
  const double share = parallel_.schedule == Schedule::dualpipe ? 0.5 : 1;
  for (const std::int64_t s : stages) {
    const Work& w = work_[static_cast<std::size_t>(s)];
    seconds += share * number(micro_batches_) * (w.forward + w.backward + w.weights);
  }
  return seconds;
}

double StagedModel::pass_on_seconds() const {
  if (parallel_.pp == 1) return 0;
  const std::int64_t apart = parallel_.tp * parallel_.cp * parallel_.dp;
  return output_ / (apart * parallel_.pp <= devices_.of_node ? devices_.in_node : devices_.between_nodes);
}

// In rings: gradients are summed, or reduce-scattered and the parameters gathered again.
double StagedModel::gradient_seconds(std::int64_t rank) const {
  double bytes = 0;
  const auto [dense, experts] = elements(rank);
  for (const auto& [elements, n] :
       {std::pair{dense, copies(parallel_, false)}, {experts, copies(parallel_, true)}}) {
    const double others = (n - 1) / n, m = number(micro_batches_);
    const double sums = elements * storage_.gradient * others,
                 gathers = elements * storage_.parameter * others;
    if (parallel_.zero == 0) bytes += 2 * sums;
    if (parallel_.zero == 1) bytes += sums + gathers;
    if (parallel_.zero == 2) bytes += m * sums + gathers;
    if (parallel_.zero == 3) bytes += m * (sums + 2 * gathers);
  }
  const bool in_node = parallel_.tp * parallel_.cp * parallel_.dp <= devices_.of_node;
  return bytes / (in_node ? devices_.in_node : devices_.between_nodes);
}

double StagedModel::least_seconds() const {
  double most = 0;
  for (std::int64_t r = 0; r < parallel_.pp; ++r) most = std::max(most, seconds_of(r) + gradient_seconds(r));
  return most;
}

Cost StagedModel::cost() const {
  // Schedules that leave gradients of weights for later give those of activations away first.
  const bool splits = parallel_.schedule == Schedule::zero_bubble || parallel_.schedule == Schedule::dualpipe;
  const auto seconds = [&](const Action& a) {
    const Work& w = work_[static_cast<std::size_t>(a.stage)];
    if (a.kind == Action::Kind::forward) return w.forward;
    if (a.kind == Action::Kind::backward) return w.backward + (splits ? 0 : w.weights);
    return splits ? w.weights : 0;
  };
  const double step = end_of_schedule(pipeline_, parallel_.pp, pass_on_seconds(), seconds);
  std::int64_t busiest = 0;
  for (std::int64_t r = 1; r < parallel_.pp; ++r) {
    if (seconds_of(r) > seconds_of(busiest)) busiest = r;
  }
  Cost c;
  const double share = number(micro_batches_) * (parallel_.schedule == Schedule::dualpipe ? 0.5 : 1);
  for (const std::int64_t s : stages_of(busiest)) {
    const Work& w = work_[static_cast<std::size_t>(s)];
    c.compute += share * w.compute;
    c.again += share * w.again;
    for (const auto& [axis, one] : w.sending) c.sending[axis] += share * one;
  }
  for (std::int64_t r = 0; r < parallel_.pp; ++r) c.gradients = std::max(c.gradients, gradient_seconds(r));
  c.bubble = step - seconds_of(busiest);
  c.all = step + c.gradients;
  return c;
}

}  // namespace assay::align
