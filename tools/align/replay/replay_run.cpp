#include "assay/align/replay/replay_run.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>

#include "assay/align/faults/together.h"
#include "assay/align/forward/architecture.h"
#include "assay/align/given/given_routing.h"
#include "assay/align/given/given_weights.h"
#include "assay/align/ranks/logged_communicator.h"
#include "assay/compare/result/printable.h"
#include "assay/dumps/io/json.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// Neither a tensor nor the scores of an attention may be larger: a step keeps some hundred of them.
void check_size(const Model& model, const Batch& batch) {
  constexpr std::int64_t most = std::int64_t{1} << 27;
  for (const ModuleCall& call : forward_calls(model, batch)) {
    for (const CallInput& input : call.inputs) {
      const bool scores = call.op->name == "attention" && input.arg == "q";
      const std::int64_t size = scores ? element_count(input.shape) / input.shape.back() * batch.length
                                       : element_count(input.shape);
      if (size > most)
        throw Error(
            "{}: {} has {} elements in {}; a replay computes at most {}; take a -tiny preset or fewer "
            "tokens, or --describe",
            printable(model.name), scores ? "a matrix of scores" : "'" + input.arg + "'", size,
            printable(call.module), most);
    }
  }
}

// Every rank that is a thread holds its parameters, their gradients and two states, of 8 bytes each at most.
void check_ranks(const Model& model, const Parallel& parallel) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 36, bytes_of_parameter = 4 * 8;
  std::int64_t count = 0;
  for (const align::Parameter& p : align::parameters(model)) count += p.size;
  const std::int64_t kept = count / (parallel.tp * parallel.pp), most = most_bytes / bytes_of_parameter;
  if (kept > most / parallel.ranks())
    throw Error(
        "--parallel: {} ranks of about {} parameters each; a replay holds at most {} in all; take fewer "
        "ranks",
        parallel.ranks(), kept, most);
}

Model model_of(const ReplayOrder& order) {
  Model model = load_model(order.model);
  return order.weights.empty() ? model : model_of_weights(order.weights, std::move(model));
}

}  // namespace

ReplayRun::ReplayRun(ReplayOrder order, MpiJob* job)
    : order_(std::move(order)), job_(job), model_(model_of(order_)) {
  StepSettings& settings = order_.settings;
  if (order_.modes_of) settings.batch.modes = modes_of();
  check_size(model_, settings.batch);
  check_ranks(model_, settings.parallel);
  check_strategy("--parallel", settings.parallel, settings);
  if (job_ != nullptr && job_->size() != settings.parallel.ranks())
    throw Error("mpirun has started {} processes; --parallel '{}' has {} ranks", job_->size(),
                to_string(settings.parallel), settings.parallel.ranks());
  if (!order_.fault.empty()) {
    std::vector<const Fault*> faults = faults_named(order_.fault);
    std::erase_if(faults, [&](const Fault* f) { return !shows(*f, settings.parallel); });
    settings.fault = together(faults);
  }
}

void ReplayRun::run(const std::function<void(std::int64_t, const StepResult&)>& tell) {
  std::signal(SIGXFSZ, SIG_IGN);  // a dump that grows too large is an error that says so
  const auto work = [&](Communicator& communicator) {
    const SummationScope sums(settings().sums);  // each rank is a thread
    const Log log = order_.log.of_rank(communicator.rank());
    LoggedCommunicator logged(communicator, log);
    try {
      steps(logged, log, tell);
    } catch (const std::exception& problem) {
      log.debug("has thrown: {}", problem.what());
      throw;
    }
  };
  const std::string strategy = to_string(settings().parallel);
  if (is_first())
    order_.log.info("replay of {}: {}, {} ranks, {}, {} steps, seed {}{}", model_.name,
                    strategy.empty() ? "a single device" : strategy, settings().parallel.ranks(),
                    name(settings().precision), order_.steps, settings().seed,
                    order_.fault.empty() ? "" : ", fault " + order_.fault);
  if (job_ != nullptr) {
    // Of files one process alone may have a problem: all end with it.
    job_->run([this](Communicator&) { open_files(); });
    job_->run(work);
  } else {
    open_files();
    run_ranks(static_cast<int>(settings().parallel.ranks()), work);
  }
  if (dump_) dump_->finish(order_.durability);
}

// What made a dump: enough to make it again.
std::string ReplayRun::producer() const {
  const StepSettings& s = settings();
  Json::Object made = {{"program", {"assay replay"}}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) made.push_back({key, {value}});
  };
  add("precision", std::string(name(s.precision)));
  made.push_back({"parallel", {to_string(s.parallel)}});
  if (order_.modes_of) made.push_back({"modes_of", {*order_.modes_of}});
  add("optimizer", to_string(s.optimizer));
  add("loss_average", std::string(name(s.loss_average)));
  for (const auto& [key, number] : {std::pair{"sequences", s.batch.sequences},
                                    {"length", s.batch.length},
                                    {"micro_batches", s.micro_batches},
                                    {"seed", s.seed}})
    made.push_back({key, {number}});
  made.push_back({"prompt", {s.batch.prompt}});
  add("weights", order_.weights);
  add("tokens", order_.tokens);
  add("routing", order_.routing);
  add("fault", order_.fault);
  add("model", to_toml(model_));
  return Json{made}.text();
}

Manifest ReplayRun::manifest() const {
  return manifest_of(settings().parallel, producer());
}

void ReplayRun::check_strategy(const char* option, const Parallel& parallel,
                               const StepSettings& settings) const {
  try {
    check(model_, settings);
  } catch (const Error& e) {
    throw Error("{} '{}': {}", option, to_string(parallel), e.what());
  }
}

// Of a strategy that would itself be possible.
Modes ReplayRun::modes_of() const {
  StepSettings other = settings();
  other.parallel = parse_parallel(*order_.modes_of, "--modes-of");
  check_strategy("--modes-of", other.parallel, other);
  return align::modes_of(model_, other.parallel);
}

std::vector<std::string> ReplayRun::other_functions() const {
  return align::other_functions(align::modes_of(model_, settings().parallel));
}

void ReplayRun::open_files() {
  order_.settings.given = sources();
  order_.settings.batch.is_routed = static_cast<bool>(settings().given.routing);
  if (!order_.dump.empty() && is_first()) dump_ = std::make_unique<AssayDumpWriter>(order_.dump, manifest());
}

Sources ReplayRun::sources() const {
  const Batches batches = {settings().batch, settings().micro_batches, order_.steps};
  Sources given;
  if (!order_.weights.empty())
    given.weights = [w = std::make_shared<GivenWeights>(order_.weights, model_)](const std::string& name) {
      return w->parameter(name);
    };
  if (!order_.tokens.empty()) {
    const auto tokens = std::make_shared<GivenTokens>(order_.tokens, batches, model_.vocabulary);
    given.sequences = [tokens](const MicroBatch& which) { return tokens->of(which); };
    given.are_dealt = tokens->are_recorded();
  }
  if (!order_.routing.empty())
    given.routing = [r = std::make_shared<GivenRouting>(order_.routing, model_, batches)](
                        const std::string& module, const MicroBatch& which) { return r->of(module, which); };
  return given;
}

std::vector<std::string> ReplayRun::unmet() const {
  std::vector<std::string> all;
  if (!dump_) return all;
  const std::vector<Record> written = open_dump(order_.dump)->records;
  if (written.empty() && !order_.selection.steps().empty())
    all.push_back(fmt::format("nothing was written; of --dump-steps '{}' the replay has those up to {}",
                              printable(order_.selection.steps()), order_.steps - 1));
  for (const std::string& pattern : order_.selection.unmet(written))
    all.push_back(fmt::format("--dump-only '{}' names nothing that was written", printable(pattern)));
  return all;
}

// Processes but the first send their records to it.
std::vector<int> ReplayRun::senders() const {
  std::vector<int> ranks;
  for (int rank = 1; job_ != nullptr && rank < job_->size(); ++rank) ranks.push_back(rank);
  return ranks;
}

void ReplayRun::steps(Communicator& communicator, const Log& log,
                      const std::function<void(std::int64_t, const StepResult&)>& tell) {
  TrainingStep replay(model_, settings(), communicator);
  const assay::Mesh mesh = manifest().mesh;
  RecordSink sink(dump_.get(), communicator, order_.selection);
  Recorder recorder(sink, replay.mesh(), settings().batch);
  for (std::int64_t step = 0; step < order_.steps; ++step) {
    const bool is_recorded = !order_.dump.empty() && order_.selection.has_step(step);
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = replay.step(is_recorded ? &recorder : nullptr);
    if (!order_.dump.empty()) sink.collect(mesh, senders());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    log.debug("step {}: loss {:.12g}, gradient norm {:.12g}{}, in {:.3f} s", step, result.loss,
              result.grad_norm, result.skipped ? ", skipped" : "", taken.count());
    if (communicator.rank() != 0) continue;
    tell(step, result);
    finite_ = finite_ && std::isfinite(result.loss) && (result.skipped || std::isfinite(result.grad_norm));
  }
}

}  // namespace assay::align
