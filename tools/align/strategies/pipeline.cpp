// Pipeline parallel (docs/semantics.md D8 to D12). The layers are cut into pp vpp stages; stage g is on rank
// g mod pp. A rank holds the parameters of its stages; the embedding is also where multi-token prediction or
// a tied head needs it. Between stages go activations and their gradients, point to point, as they are
// stored. Gradients of what several stages hold are summed over them; each counts once in the norm. No
// scaling.
#include "assay/align/strategies/pipeline.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::vector<std::int64_t> layers_of_stages(const Parallel& p, std::int64_t layers) {
  const std::int64_t stages = p.pp * p.vpp;
  if (p.stages.empty()) {
    if (layers < stages)
      throw Error("{} layers do not give {} stages (pp {} times vpp {}) one each; lower pp or vpp", layers,
                  stages, p.pp, p.vpp);
    std::vector<std::int64_t> even(static_cast<std::size_t>(stages), layers / stages);
    for (std::int64_t k = 0; k < layers % stages; ++k) ++even[static_cast<std::size_t>(k)];
    return even;
  }
  const std::int64_t sum = std::accumulate(p.stages.begin(), p.stages.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(p.stages.size()) != stages || sum != layers)
    throw Error("stages names {} stages of {} layers together; expected {} (pp {} times vpp {}) of {}",
                p.stages.size(), sum, stages, p.pp, p.vpp, layers);
  return p.stages;
}

void check_schedule(const Parallel& p, std::int64_t micro_batches) {
  const bool interleaves = p.schedule == Schedule::interleaved;
  if (p.vpp > 1 && !interleaves)
    throw Error("vpp is {}; only schedule=interleaved has more than one chunk of layers", p.vpp);
  if (interleaves && micro_batches % p.pp != 0)
    throw Error("schedule=interleaved takes micro-batches in groups of pp = {}; {} do not divide", p.pp,
                micro_batches);
  if (p.schedule == Schedule::dualpipe &&
      (p.pp % 2 != 0 || micro_batches % 2 != 0 || micro_batches < 2 * p.pp))
    throw Error(
        "schedule=dualpipe needs an even pp and an even number of at least 2 pp micro-batches; "
        "there are {} and {}",
        p.pp, micro_batches);
}

}  // namespace

Pipeline::Pipeline(const Parallel& parallel, const Model& model, std::int64_t micro_batches)
    : parallel_(parallel), micro_batches_(micro_batches) {
  check_schedule(parallel, micro_batches);
  std::int64_t first = 0;
  for (const std::int64_t layers : layers_of_stages(parallel, model.layers)) {
    stages_.push_back({first, first + layers, first == 0 && stages_.empty(), false});
    first += layers;
  }
  stages_.back().finishes = true;
}

std::int64_t Pipeline::rank_of(std::int64_t stage, std::int64_t micro_batch) const {
  const bool from_the_end = parallel_.schedule == Schedule::dualpipe && micro_batch >= micro_batches_ / 2;
  return from_the_end ? parallel_.pp - 1 - stage : stage % parallel_.pp;
}

std::vector<Action> Pipeline::actions(std::int64_t rank) const {
  switch (parallel_.schedule) {
    case Schedule::one_f_one_b:
      return one_f_one_b(rank);
    case Schedule::interleaved:
      return interleaved(rank);
    case Schedule::zero_bubble:
      return zero_bubble(rank);
    case Schedule::dualpipe:
      return dualpipe(rank);
  }
  return {};
}

// Narayanan 2021 (arXiv 2104.04473), figure 4: as many forwards as there are stages behind, then in turns.
std::vector<Action> Pipeline::one_f_one_b(std::int64_t rank) const {
  std::vector<Action> all;
  const std::int64_t ahead = std::min(parallel_.pp - rank - 1, micro_batches_);
  for (std::int64_t m = 0; m < ahead; ++m) all.push_back({Action::Kind::forward, m, rank});
  for (std::int64_t m = 0; m < micro_batches_; ++m) {
    if (m + ahead < micro_batches_) all.push_back({Action::Kind::forward, m + ahead, rank});
    all.push_back({Action::Kind::backward, m, rank});
    all.push_back({Action::Kind::weights, m, rank});
  }
  return all;
}

// The same with several chunks of layers on each rank: groups of pp micro-batches go through all of them.
std::vector<Action> Pipeline::interleaved(std::int64_t rank) const {
  const std::int64_t p = parallel_.pp, v = parallel_.vpp, all_chunks = micro_batches_ * v;
  const auto forward = [&](std::int64_t k) {
    const std::int64_t group = k / (p * v), in_group = k % (p * v);
    return Action{Action::Kind::forward, group * p + in_group % p, in_group / p * p + rank};
  };
  const auto backward = [&](std::int64_t k) {
    const Action f = forward(k);
    return Action{Action::Kind::backward, f.micro_batch, (v - 1 - f.stage / p) * p + rank};
  };
  const std::int64_t ahead = std::min(2 * (p - rank - 1) + (v - 1) * p, all_chunks);
  std::vector<Action> all;
  for (std::int64_t k = 0; k < ahead; ++k) all.push_back(forward(k));
  for (std::int64_t k = 0; k < all_chunks; ++k) {
    if (k + ahead < all_chunks) all.push_back(forward(k + ahead));
    const Action b = backward(k);
    all.push_back(b);
    all.push_back({Action::Kind::weights, b.micro_batch, b.stage});
  }
  return all;
}

// Qi 2023 (arXiv 2401.10241), ZB-H1: gradients of weights wait until the stage would be idle: as many
// micro-batches as ranks before this one.
std::vector<Action> Pipeline::zero_bubble(std::int64_t rank) const {
  std::vector<Action> all;
  std::deque<std::int64_t> waiting;
  const auto weights = [&] {
    all.push_back({Action::Kind::weights, waiting.front(), rank});
    waiting.pop_front();
  };
  for (const Action& action : one_f_one_b(rank)) {
    if (action.kind != Action::Kind::weights) all.push_back(action);
    if (action.kind == Action::Kind::backward) waiting.push_back(action.micro_batch);
    if (static_cast<std::int64_t>(waiting.size()) > rank) weights();
  }
  while (!waiting.empty()) weights();
  return all;
}

// DeepSeek-V3 (arXiv 2412.19437, section 3.2.1): both ends of the pipe feed micro-batches, the first half
// from rank 0 and the others from the last; rank r holds stages r and pp - 1 - r. The eight steps of the
// published schedule.
std::vector<Action> Pipeline::dualpipe(std::int64_t rank) const {
  const std::int64_t p = parallel_.pp, half = micro_batches_ / 2, from_end = std::min(rank, p - 1 - rank);
  const bool second_half = rank >= p / 2;
  std::vector<Action> all;
  struct Direction {
    std::int64_t stage, first, forwards = 0, backwards = 0;
  };
  // 0: the direction whose stage of this rank is nearer to its beginning
  Direction directions[] = {{second_half ? p - 1 - rank : rank, second_half ? half : 0},
                            {second_half ? rank : p - 1 - rank, second_half ? 0 : half}};
  std::deque<Action> waiting;
  const auto forward = [&](int d) {
    Direction& way = directions[d];
    all.push_back({Action::Kind::forward, way.first + way.forwards++, way.stage});
  };
  const auto backward = [&](int d, bool weights_later) {
    Direction& way = directions[d];
    const std::int64_t m = way.first + way.backwards++;
    all.push_back({Action::Kind::backward, m, way.stage});
    const Action weights = {Action::Kind::weights, m, way.stage};
    if (weights_later) {
      waiting.push_back(weights);
    } else {
      all.push_back(weights);
    }
  };
  const auto weights = [&] {
    all.push_back(waiting.front());
    waiting.pop_front();
  };
  const auto times = [](std::int64_t n, auto f) {
    for (std::int64_t i = 0; i < n; ++i) f();
  };
  const std::int64_t middle = p / 2 - from_end - 1;
  times(2 * middle, [&] { forward(0); });
  times(from_end + 1, [&] { forward(0), forward(1); });
  times(middle, [&] { backward(1, true), weights(), forward(1); });
  times(half - p + from_end + 1, [&] { forward(0), backward(1, false), forward(1), backward(0, false); });
  times(middle, [&] { backward(1, false), forward(1), backward(0, false); });
  times(from_end + 1, [&] { backward(1, true), backward(0, true); });
  times(middle, [&] { weights(), backward(0, true); });
  while (!waiting.empty()) weights();
  return all;
}

}  // namespace assay::align
