#include <fmt/format.h>

#include <memory>

#include "assay/align/faults/together.h"
#include "assay/align/forward/describe.h"
#include "assay/align/given/given_tokens.h"
#include "assay/align/replay/replay_run.h"
#include "assay/align/settings/strategy.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "log.h"
#include "output.h"
#include "verb.h"

namespace assay {
namespace {

struct ReplayVerb {
  std::string model, dump;
  std::string weights, tokens, routing;  ///< files or dumps; empty: drawn, and free
  std::vector<std::string> dump_only;    ///< patterns; none: everything
  std::string dump_steps;                ///< empty: all
  bool describe = false, batch_first = false;
  std::optional<long long> steps, micro_batches, sequences,
      length;  ///< else those of the tokens, or 1 and 32
  long long seed = 0;
  std::string precision = "fp64";
  std::string parallel, optimizer = "adamw", loss_average = "micro-batches";
  std::optional<std::string> modes_of;
  double prompt = 0;
  std::string fault;                                        ///< of the catalogue; empty: none
  std::string tolerance = "telechat3", dtype = "bfloat16";  ///< of describe
};

const align::Batches drawn = {.batch = {.sequences = 1, .length = 32}};

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

align::Batch batch_of(const ReplayVerb& verb, const align::Batches& otherwise) {
  return {.sequences = verb.sequences.value_or(otherwise.batch.sequences),
          .length = verb.length.value_or(otherwise.batch.length),
          .prompt = verb.prompt,
          .batch_first = verb.batch_first || otherwise.batch.batch_first};
}

align::ReplayOrder order_of(const ReplayVerb& verb) {
  align::Batches given = drawn;
  if (!verb.tokens.empty()) given = align::batches_of_program(verb.tokens).value_or(drawn);
  return {.model = verb.model,
          .settings = {.batch = batch_of(verb, given),
                       .micro_batches = verb.micro_batches.value_or(given.micro_batches),
                       .precision = align::parse_precision(verb.precision),
                       .optimizer = align::parse_optimizer(verb.optimizer),
                       .loss_average = align::parse_loss_average(verb.loss_average),
                       .parallel = align::parse_parallel(verb.parallel),
                       .seed = verb.seed},
          .steps = verb.steps.value_or(given.steps),
          .weights = verb.weights,
          .tokens = verb.tokens,
          .routing = verb.routing,
          .dump = verb.dump,
          .selection = select(verb),
          .modes_of = verb.modes_of,
          .fault = verb.fault,
          .log = program_log()};
}

void print_step(std::int64_t step, const align::StepResult& result) {
  fmt::print("step {}: loss {:.12g}, gradient norm {:.12g}{}\n", step, result.loss, result.grad_norm,
             result.skipped ? fmt::format(": skipped, loss scale {}", result.loss_scale) : "");
}

int replay(const ReplayVerb& verb, align::MpiJob* job) {
  if (verb.describe) {
    print_description(align::load_model(verb.model), batch_of(verb, drawn), verb);
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
  if (is_first && run.model().losses.mtp_depth < align::load_model(verb.model).losses.mtp_depth)
    fmt::print("note: {} has no layers of multi-token prediction: they are left out\n",
               printable(verb.weights));
  run.run(print_step);
  for (const std::string& note : run.unmet()) fmt::print("note: {}\n", note);
  return run.is_finite() ? 0 : 1;
}

void declare(ReplayVerb& verb, Options& options) {
  options.option("--model", verb.model, "a preset, a TOML file, or a config.json of Hugging Face")
      .required()
      .holds("M");
  const Option& describe = options.flag(
      "--describe", verb.describe, "print parameters, accumulation counts and tolerances, and run nothing");
  const auto count = [&](const char* name, std::optional<long long>& value, const char* meaning) -> Option& {
    return options.option(name, value, meaning).within(1LL, 1LL << 19).holds("N");
  };
  count("--sequences", verb.sequences, "of a micro-batch");
  count("--length", verb.length, "tokens of a sequence");
  count("--steps", verb.steps, "training steps").excludes(describe);
  count("--micro-batches", verb.micro_batches,
        "of each step, over all ranks; their gradients are accumulated")
      .excludes(describe);
  options
      .flag("--batch-first", verb.batch_first,
            "rows of a micro-batch are sequence after sequence, as in Hugging Face's code;\n"
            "else token after token, as in Megatron's")
      .excludes(describe);
  options.option("--seed", verb.seed, "of weights and tokens; 0 by default")
      .not_negative()
      .holds("N")
      .excludes(describe);
  options.option("--precision", verb.precision, "fp64, fp32, exact, bf16, fp16 or fp8")
      .one_of({"fp64", "fp32", "exact", "bf16", "fp16", "fp8"})
      .excludes(describe);
  options.option("--parallel", verb.parallel, "the strategy, tp=2,sp=1,pp=2:" + align::strategies_text())
      .holds("KEY=N,..")
      .excludes(describe);
  options
      .option("--optimizer", verb.optimizer,
              "adamw, adam-l2, torch-adamw, torch-adam, mindspore-adamw, eps-hat or muon,\n"
              "and what differs: lr=1e-3,weight_decay=0.1,decay=matrices,max_norm=1,..")
      .holds("NAME[,KEY=VALUE,..]")
      .excludes(describe);
  options
      .option("--modes-of", verb.modes_of,
              "compute what is another function by design under that strategy as it is there:\n"
              "balance losses over groups of ranks, capacity, redistributed samples")
      .holds("KEY=VALUE,..")
      .excludes(describe);
  options
      .option("--loss-average", verb.loss_average,
              "over micro-batches, or over tokens as calculate_per_token_loss does")
      .one_of({"micro-batches", "tokens"})
      .excludes(describe);
  options
      .option("--prompt", verb.prompt,
              "of each sequence up to this part, at its beginning, is a prompt without targets")
      .within(0., 1.)
      .holds("P")
      .excludes(describe);
  const auto given = [&](const char* name, std::string& path, const char* meaning) {
    options.option(name, path, meaning).holds("PATH").excludes(describe);
  };
  given("--weights", verb.weights,
        "start from these: a dump of a replay or program, or a checkpoint of Hugging Face");
  given("--tokens", verb.tokens,
        "integers [micro-batches, sequences, length + 1], 'tokens' and 'targets',\n"
        "or the dump of a replay or of a program (then sizes are its own)");
  given("--routing", verb.routing, "take the experts that the routers of this dump of a replay have chosen");
  options.option("--fault", verb.fault, "do it wrong as known faults do: F001,F131; assay faults lists them")
      .holds("ID")
      .excludes(describe);
  const Option& dump = options.option("--dump", verb.dump, "write everything but moves as an assay-dump")
                           .holds("DIR")
                           .excludes(describe);
  options
      .option("--dump-only", verb.dump_only,
              "only this module, module.slot or module.slot.arg; * and ? as in a shell")
      .holds("PATTERN")
      .needs(dump);
  options.option("--dump-steps", verb.dump_steps, "only these steps").holds("N,N-N").needs(dump);
  options.option("--tolerance", verb.tolerance, "policy of the description").holds("POLICY").needs(describe);
  options.option("--dtype", verb.dtype, "of the outputs in it").holds("T").needs(describe);
}

// Behind mpirun every process throws the same; the first says it while the job lives, for the launcher ends
// the others when one has ended with this status.
int run(const ReplayVerb& verb, const Options&) {
  const std::unique_ptr<align::MpiJob> job = align::join_mpi_job();
  try {
    return replay(verb, job.get());
  } catch (const std::exception& e) {
    return job == nullptr || job->rank() == 0 ? trouble(e) : 2;
  }
}

}  // namespace

namespace verbs {
extern constexpr Verb replay = {
    "replay", "compute training steps of a model with golden operators, on one device or under a strategy",
    "assay replay --model telechat3-105b-tiny --parallel tp=2,pp=2 --dump run", declared<ReplayVerb>};
}

}  // namespace assay
