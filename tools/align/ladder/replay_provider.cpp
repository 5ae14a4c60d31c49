#include <fmt/format.h>

#include <algorithm>

#include "assay/align/faults/together.h"
#include "assay/align/ladder/provider.h"
#include "assay/align/model/model.h"
#include "assay/align/replay/replay_run.h"
#include "assay/compare/result/version.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// That of torch.amp.GradScaler. Megatron-LM's 2^32 overflows in the first steps, until it has shrunk: nothing
// could be judged.
constexpr double initial_scale = 0x1p16;

constexpr std::int64_t vector_width = 16;  // float32 in 512 bits

// Of a rerun: pairwise, then in blocks as of vector units of other widths.
Summation sums_of(std::int64_t rerun) {
  Summation sums;
  sums.pairwise = rerun == 1;
  if (rerun > 1) sums.block = vector_width * (rerun - 1);
  return sums;
}

class ReplayProvider : public Provider {
 public:
  explicit ReplayProvider(std::string fault) : fault_(std::move(fault)) {
    if (!fault_.empty()) faults_named(fault_);
  }

  RunResult run(const RunOrder& order) override {
    const auto begin = std::chrono::steady_clock::now();
    RunResult result;
    result.dump = order.folder / "dump";
    try {
      std::filesystem::remove_all(result.dump);
      ReplayRun run(order_of(order, result.dump));
      run.run([](std::int64_t, const StepResult&) {});
    } catch (const std::exception& e) {
      result.state = RunResult::State::crashed;
      result.problem = e.what();
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

  std::string objection(const Rung& rung) const override {
    return align::objection(rung.work, rung.parallel);
  }
  void check(const std::vector<Rung>& rungs) const override {
    if (fault_.empty()) return;
    for (const Fault* fault : faults_named(fault_)) {
      const auto is_planted = [&](const Rung& rung) { return shows(*fault, rung.parallel); };
      if (std::ranges::none_of(rungs, is_planted)) check_fault(*fault, rungs.back().parallel);
    }
  }
  bool takes_routing() const override { return true; }
  bool computes_exactly() const override { return true; }
  bool reorders() const override { return true; }
  std::string content(const Rung& rung) const override {
    return fmt::format("assay {} replay of {} fault {}", version, to_toml(load_model(rung.work.model)),
                       fault_);
  }
  bool runs_beside() const override { return true; }
  std::string text() const override { return fault_.empty() ? "replay" : "replay with fault " + fault_; }

 private:
  ReplayOrder order_of(const RunOrder& order, const std::filesystem::path& dump) const {
    const Work& w = order.rung.work;
    ReplayOrder replay;
    replay.model = w.model;
    replay.settings.batch = {w.sequences, w.length, w.prompt};
    replay.settings.micro_batches = w.micro_batches;
    replay.settings.precision = parse_precision(w.precision);
    replay.settings.optimizer = parse_optimizer(w.optimizer);
    replay.settings.loss_average = parse_loss_average(w.loss_average);
    replay.settings.parallel = order.rung.parallel;
    replay.settings.seed = w.seed;
    replay.settings.sums = sums_of(order.rerun);
    replay.settings.loss_scaling.initial = initial_scale;
    replay.steps = w.steps;
    replay.routing = order.routing;
    replay.dump = dump.string();
    replay.durability = Durability::page_cache;
    if (!order.modes_of.empty()) replay.modes_of = order.modes_of;
    replay.fault = fault_;
    replay.log = order.log;
    return replay;
  }

  const std::string fault_;
};

}  // namespace

std::unique_ptr<Provider> replay_provider(std::string fault) {
  return std::make_unique<ReplayProvider>(std::move(fault));
}

}  // namespace assay::align
