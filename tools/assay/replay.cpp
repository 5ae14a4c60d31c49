#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <memory>
#include <optional>

#include "assay/align/describe.h"
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

std::string producer(const align::Model& model, const align::StepSettings& settings) {
  const auto text = [](const std::string& value) {
    Json json;
    json.value_ = value;
    return json.text();
  };
  return fmt::format(
      "{{\"program\":\"assay replay\",\"precision\":{},\"parallel\":{},\"optimizer\":{},\"loss_average\":{},"
      "\"model\":{}}}",
      text(std::string(name(settings.precision))), text(to_string(settings.parallel)),
      text(to_string(settings.optimizer)), text(std::string(name(settings.loss_average))),
      text(align::to_toml(model)));
}

}  // namespace

int run(const ReplayVerb& verb) {
  const align::Model model = align::load_model(verb.model);
  const align::Batch batch = {verb.sequences, verb.length, verb.prompt};
  if (verb.describe) {
    print_description(model, batch, verb);
    return 0;
  }
  check_size(model, batch);
  const align::StepSettings settings = {.batch = batch,
                                        .micro_batches = verb.micro_batches,
                                        .precision = align::parse_precision(verb.precision),
                                        .optimizer = align::parse_optimizer(verb.optimizer),
                                        .loss_average = align::parse_loss_average(verb.loss_average),
                                        .parallel = align::parse_parallel(verb.parallel),
                                        .seed = verb.seed};
  align::check(model, settings);
  std::signal(SIGXFSZ, SIG_IGN);  // a dump that grows too large is an error that says so
  std::unique_ptr<AssayDumpWriter> dump;
  if (!verb.dump.empty())
    dump = std::make_unique<AssayDumpWriter>(
        verb.dump, align::manifest_of(settings.parallel, producer(model, settings)));
  bool finite = true;
  const auto ranks = static_cast<int>(settings.parallel.ranks());
  align::run_ranks(ranks, [&](align::Communicator& communicator) {
    align::Replay replay(model, settings, communicator);
    std::optional<align::Recorder> recorder;
    if (dump) recorder.emplace(*dump, replay.mesh());
    for (long long step = 0; step < verb.steps; ++step) {
      const align::StepResult result = replay.step(recorder ? &*recorder : nullptr);
      if (communicator.rank() != 0) continue;
      fmt::print("step {}: loss {:.12g}, gradient norm {:.12g}\n", step, result.loss, result.grad_norm);
      finite = finite && std::isfinite(result.loss) && std::isfinite(result.grad_norm);
    }
  });
  if (dump) dump->finish();
  return finite ? 0 : 1;
}

}  // namespace assay
