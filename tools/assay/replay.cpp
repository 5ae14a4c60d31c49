#include <fmt/format.h>

#include <memory>

#include "assay/align/describe.h"
#include "assay/align/step.h"
#include "assay/golden/error.h"
#include "verbs.h"

namespace assay {
namespace {

void print_description(const Model& model, const Batch& batch, const ReplayVerb& verb) {
  const auto dtype = parse_dtype(verb.dtype);
  if (!dtype) throw Error("--dtype {}: is no dtype; expected a torch name such as bfloat16", verb.dtype);
  fmt::print("{}", describe(model, {batch, load_policy(verb.tolerance), *dtype}));
}

// What a step holds at once: parameters, two moments and a gradient, in float64.
void check_size(const Model& model) {
  constexpr std::int64_t most = std::int64_t{1} << 27;
  std::int64_t size = 0;
  for (const Parameter& p : parameters(model)) size += p.size;
  if (size > most)
    throw Error("{} has {} parameters; a replay computes at most {}; take a tiny preset, or --describe",
                model.name, size, most);
}

}  // namespace

int run(const ReplayVerb& verb) {
  const Model model = load_model(verb.model);
  const Batch batch = {verb.sequences, verb.length};
  if (verb.describe) {
    print_description(model, batch, verb);
    return 0;
  }
  check_size(model);
  Replay replay(model, {batch, verb.micro_batches, verb.precision == "fp64" ? Level::fp64 : Level::report});
  std::unique_ptr<Recorder> recorder;
  if (!verb.dump.empty()) {
    recorder = std::make_unique<Recorder>(
        verb.dump, fmt::format("{{\"program\":\"assay replay\",\"precision\":\"{}\"}}", verb.precision));
  }
  for (long long step = 0; step < verb.steps; ++step) {
    const StepResult result = replay.step(recorder.get());
    fmt::print("step {}: loss {:.12g}, gradient norm {:.12g}\n", step, result.loss, result.grad_norm);
  }
  if (recorder) recorder->finish();
  return 0;
}

}  // namespace assay
