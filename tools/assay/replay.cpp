#include <fmt/format.h>

#include <memory>

#include "assay/align/faults/together.h"
#include "assay/align/model/describe.h"
#include "assay/align/replay_run.h"
#include "assay/golden/error.h"
#include "verbs.h"

namespace assay {
namespace {

void print_description(const align::Model& model, const align::Batch& batch, const ReplayVerb& verb) {
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype) throw Error("--dtype {}: is no dtype; expected a torch name such as bfloat16", verb.dtype);
  fmt::print("{}", align::describe(model, {batch, load_policy(verb.tolerance), *dtype}));
}

align::Selection select(const ReplayVerb& verb) {
  try {
    return {verb.dump_only, verb.dump_steps};
  } catch (const Error& e) {
    throw Error("--dump-steps {}", e.what());
  }
}

align::ReplayOrder order_of(const ReplayVerb& verb) {
  return {.model = verb.model,
          .settings = {.batch = {verb.sequences, verb.length, verb.prompt},
                       .micro_batches = verb.micro_batches,
                       .precision = align::parse_precision(verb.precision),
                       .optimizer = align::parse_optimizer(verb.optimizer),
                       .loss_average = align::parse_loss_average(verb.loss_average),
                       .parallel = align::parse_parallel(verb.parallel),
                       .seed = verb.seed},
          .steps = verb.steps,
          .weights = verb.weights,
          .tokens = verb.tokens,
          .routing = verb.routing,
          .dump = verb.dump,
          .selection = select(verb),
          .modes_of = verb.modes_of,
          .fault = verb.fault};
}

void print_step(std::int64_t step, const align::StepResult& result) {
  fmt::print("step {}: loss {:.12g}, gradient norm {:.12g}{}\n", step, result.loss, result.grad_norm,
             result.skipped ? fmt::format(": skipped, loss scale {}", result.loss_scale) : "");
}

int replay(const ReplayVerb& verb, align::MpiJob* job) {
  if (verb.describe) {
    print_description(align::load_model(verb.model), {verb.sequences, verb.length}, verb);
    return 0;
  }
  align::ReplayRun run(order_of(verb), job);
  if (!verb.fault.empty()) {
    for (const align::Fault* fault : align::faults_named(verb.fault))
      check_fault(*fault, run.settings().parallel);
  }
  const bool is_first = job == nullptr || job->rank() == 0;
  // Of a strategy that a single device does not compute, nor is asked to.
  if (is_first && !verb.modes_of) {
    for (const std::string& what : run.other_functions())
      fmt::print("note: {}, by design: compare with --modes-of '{}'\n", what,
                 to_string(run.settings().parallel));
  }
  run.run(print_step);
  for (const std::string& note : run.unmet()) fmt::print("note: {}\n", note);
  return run.is_finite() ? 0 : 1;
}

}  // namespace

// Behind mpirun every process throws the same; the first says it.
int run(const ReplayVerb& verb) {
  const std::unique_ptr<align::MpiJob> job = align::join_mpi_job();
  try {
    return replay(verb, job.get());
  } catch (const std::exception&) {
    if (job == nullptr || job->rank() == 0) throw;
    return 2;
  }
}

}  // namespace assay
