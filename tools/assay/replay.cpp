#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <memory>

#include "assay/align/architecture.h"
#include "assay/align/describe.h"
#include "assay/align/faults/fault.h"
#include "assay/align/given_routing.h"
#include "assay/align/given_weights.h"
#include "assay/align/mpi_job.h"
#include "assay/align/step.h"
#include "assay/compare/report.h"
#include "assay/dumps/json.h"
#include "assay/golden/error.h"
#include "verbs.h"

namespace assay {
namespace {

void print_description(const align::Model& model, const align::Batch& batch, const ReplayVerb& verb) {
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype) throw Error("--dtype {}: is no dtype; expected a torch name such as bfloat16", verb.dtype);
  fmt::print("{}", align::describe(model, {batch, load_policy(verb.tolerance), *dtype}));
}

// Neither a tensor nor the scores of an attention may be larger: a step keeps some hundred of them.
void check_size(const align::Model& model, const align::Batch& batch) {
  constexpr std::int64_t most = std::int64_t{1} << 27;
  for (const align::Call& call : align::forward_calls(model, batch)) {
    for (const align::CallInput& input : call.inputs) {
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
void check_ranks(const align::Model& model, const align::Parallel& parallel) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 36, bytes_of_parameter = 4 * 8;
  std::int64_t parameters = 0;
  for (const align::Parameter& p : align::parameters(model)) parameters += p.size;
  const std::int64_t kept = parameters / (parallel.tp * parallel.pp), most = most_bytes / bytes_of_parameter;
  if (kept > most / parallel.ranks())
    throw Error(
        "--parallel: {} ranks of about {} parameters each; a replay holds at most {} in all; take fewer "
        "ranks",
        parallel.ranks(), kept, most);
}

// What made a dump: enough to make it again.
std::string producer(const align::Model& model, const align::StepSettings& settings, const ReplayVerb& verb) {
  Json::Object made = {{"program", {"assay replay"}}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) made.push_back({key, {value}});
  };
  add("precision", std::string(name(settings.precision)));
  made.push_back({"parallel", {to_string(settings.parallel)}});
  if (verb.modes_of) made.push_back({"modes_of", {*verb.modes_of}});
  add("optimizer", to_string(settings.optimizer));
  add("loss_average", std::string(name(settings.loss_average)));
  for (const auto& [key, number] : {std::pair{"sequences", verb.sequences},
                                    {"length", verb.length},
                                    {"micro_batches", verb.micro_batches},
                                    {"seed", verb.seed}})
    made.push_back({key, {std::int64_t{number}}});
  made.push_back({"prompt", {verb.prompt}});
  add("weights", verb.weights);
  add("tokens", verb.tokens);
  add("routing", verb.routing);
  add("fault", verb.fault);
  add("model", align::to_toml(model));
  return Json{made}.text();
}

align::Selection select(const ReplayVerb& verb) {
  try {
    return {verb.dump_only, verb.dump_steps};
  } catch (const Error& e) {
    throw Error("--dump-steps {}", e.what());
  }
}

// The ranks of a replay, as threads or as the processes of mpirun.
class Runs {
 public:
  Runs(const ReplayVerb& verb, align::MpiJob* job) : verb_(verb), job_(job) {}

  int run() {
    model_ = align::load_model(verb_.model);
    if (verb_.describe) {
      print_description(model_, {verb_.sequences, verb_.length}, verb_);
      return 0;
    }
    settings_ = {.batch = {verb_.sequences, verb_.length, verb_.prompt},
                 .micro_batches = verb_.micro_batches,
                 .precision = align::parse_precision(verb_.precision),
                 .optimizer = align::parse_optimizer(verb_.optimizer),
                 .loss_average = align::parse_loss_average(verb_.loss_average),
                 .parallel = align::parse_parallel(verb_.parallel),
                 .seed = verb_.seed};
    if (verb_.modes_of) settings_.batch.modes = modes_of();
    selection_ = select(verb_);
    check_size(model_, settings_.batch);
    check_ranks(model_, settings_.parallel);
    check_strategy("--parallel", verb_.parallel, settings_);
    if (!verb_.fault.empty()) plant(align::find_fault(verb_.fault));
    check_processes();
    if (is_first()) declare_other_functions();
    std::signal(SIGXFSZ, SIG_IGN);  // a dump that grows too large is an error that says so
    const auto work = [this](align::Communicator& communicator) { steps(communicator); };
    if (job_ != nullptr) {
      // Of files one process alone may have a problem: all end with it.
      job_->run([this](align::Communicator&) { open_files(); });
      job_->run(work);
    } else {
      open_files();
      align::run_ranks(static_cast<int>(settings_.parallel.ranks()), work);
    }
    if (dump_) finish_dump();
    return finite_ ? 0 : 1;
  }

 private:
  bool is_first() const { return job_ == nullptr || job_->rank() == 0; }
  Manifest manifest() const {
    return align::manifest_of(settings_.parallel, producer(model_, settings_, verb_));
  }
  void check_processes() const {
    if (job_ != nullptr && job_->size() != settings_.parallel.ranks())
      throw Error("mpirun has started {} processes; --parallel '{}' has {} ranks", job_->size(),
                  printable(verb_.parallel), settings_.parallel.ranks());
  }
  void check_strategy(const char* option, const std::string& text,
                      const align::StepSettings& settings) const {
    try {
      align::check(model_, settings);
    } catch (const Error& e) {
      throw Error("{} '{}': {}", option, printable(text), e.what());
    }
  }
  void plant(const align::Fault& fault) {
    check_fault(fault, settings_.parallel);
    settings_.fault = fault.plant;
  }
  // Of a strategy that would itself be possible.
  align::Modes modes_of() const {
    align::StepSettings other = settings_;
    other.parallel = align::parse_parallel(*verb_.modes_of, "--modes-of");
    check_strategy("--modes-of", *verb_.modes_of, other);
    return align::modes_of(model_, other.parallel);
  }
  // Of a strategy that a single device does not compute, nor is asked to.
  void declare_other_functions() const {
    if (verb_.modes_of) return;
    for (const std::string& what : align::other_functions(align::modes_of(model_, settings_.parallel)))
      fmt::print("note: {}, by design: compare with --modes-of '{}'\n", what, to_string(settings_.parallel));
  }
  void open_files() {
    settings_.given = sources();
    settings_.batch.is_routed = static_cast<bool>(settings_.given.routing);
    if (!verb_.dump.empty() && is_first()) dump_ = std::make_unique<AssayDumpWriter>(verb_.dump, manifest());
  }
  align::Sources sources() {
    const align::Batches batches = {settings_.batch, verb_.micro_batches, verb_.steps};
    align::Sources given;
    if (!verb_.weights.empty())
      given.weights = [w = std::make_shared<align::GivenWeights>(verb_.weights, model_)](
                          const std::string& name) { return w->parameter(name); };
    if (!verb_.tokens.empty()) {
      const auto tokens = std::make_shared<align::GivenTokens>(verb_.tokens, batches, model_.vocabulary);
      given.sequences = [tokens](const align::MicroBatch& which) { return tokens->of(which); };
      given.are_dealt = tokens->are_recorded();
    }
    if (!verb_.routing.empty())
      given.routing = [r = std::make_shared<align::GivenRouting>(verb_.routing, model_, batches)](
                          const std::string& module, const align::MicroBatch& which) {
        return r->of(module, which);
      };
    return given;
  }
  void finish_dump() {
    dump_->finish();
    const std::vector<Record> written = open_dump(verb_.dump)->records;
    if (written.empty() && !verb_.dump_steps.empty())
      fmt::print("note: nothing was written; of --dump-steps '{}' the replay has those up to {}\n",
                 printable(verb_.dump_steps), verb_.steps - 1);
    for (const std::string& pattern : selection_.unmet(written))
      fmt::print("note: --dump-only '{}' names nothing that was written\n", printable(pattern));
  }
  // Processes but the first send their records to it.
  std::vector<int> senders() const {
    std::vector<int> ranks;
    for (int rank = 1; job_ != nullptr && rank < job_->size(); ++rank) ranks.push_back(rank);
    return ranks;
  }

  void steps(align::Communicator& communicator) {
    align::Replay replay(model_, settings_, communicator);
    const assay::Mesh mesh = manifest().mesh;
    align::RecordSink sink(dump_.get(), communicator, selection_);
    align::Recorder recorder(sink, replay.mesh());
    for (long long step = 0; step < verb_.steps; ++step) {
      const bool is_recorded = !verb_.dump.empty() && selection_.has_step(step);
      const align::StepResult result = replay.step(is_recorded ? &recorder : nullptr);
      if (!verb_.dump.empty()) sink.collect(mesh, senders());
      if (communicator.rank() != 0) continue;
      fmt::print("step {}: loss {:.12g}, gradient norm {:.12g}{}\n", step, result.loss, result.grad_norm,
                 result.skipped ? fmt::format(": skipped, loss scale {}", result.loss_scale) : "");
      finite_ = finite_ && std::isfinite(result.loss) && (result.skipped || std::isfinite(result.grad_norm));
    }
  }

  const ReplayVerb& verb_;
  align::MpiJob* const job_;
  align::Model model_;
  align::StepSettings settings_;
  align::Selection selection_;
  std::unique_ptr<AssayDumpWriter> dump_;
  bool finite_ = true;
};

}  // namespace

// Behind mpirun every process throws the same; the first says it.
int run(const ReplayVerb& verb) {
  const std::unique_ptr<align::MpiJob> job = align::join_mpi_job();
  try {
    return Runs(verb, job.get()).run();
  } catch (const std::exception&) {
    if (job == nullptr || job->rank() == 0) throw;
    return 2;
  }
}

}  // namespace assay
