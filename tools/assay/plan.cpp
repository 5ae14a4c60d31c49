#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "assay/align/ladder/ladder_report.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/align/planning/balance.h"
#include "assay/align/planning/cover.h"
#include "assay/align/planning/enumerate.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "output.h"
#include "verb.h"

namespace assay {
namespace {

constexpr double gibi = 1 << 30, giga = 1e9, tera = 1e12;

struct PlanVerb {
  std::string model, changed, output;
  std::vector<std::string> parallel;
  std::optional<long long> devices, sequences;
  double memory = 0;  ///< GiB; 0: not given
  long long length = 4096, micro_batch = 1, most = 8;
  align::Devices rates;
  double tflops = rates.flops / tera, in_node = rates.in_node / giga,
         between_nodes = rates.between_nodes / giga;
  long long node = rates.of_node;
  bool balance = false;
};

std::string memory_text(const align::Memory& m) {
  return fmt::format("{:6.1f} {:7.1f} {:6.1f} {:6.1f} {:6.1f} {:6.1f}", m.all() / gibi, m.parameters / gibi,
                     m.gradients / gibi, m.states / gibi, m.activations / gibi, m.again / gibi);
}

std::string cost_text(const align::Cost& c) {
  double sending = 0;
  for (const auto& [axis, seconds] : c.sending) sending += seconds;
  return fmt::format("{:7.2f} {:7.2f} {:6.2f} {:6.2f} {:6.2f} {:6.2f}", c.all, c.compute, c.again, sending,
                     c.bubble, c.gradients);
}

std::string table_text(const std::vector<align::Candidate>& all) {
  std::string text = fmt::format(
      "{0:>48}{1}\n{2:>6} {3:>7} {4:>6} {5:>6} {6:>6} {7:>6}  {2:>7} {8:>7} {7:>6} {9:>6} {10:>6} {4:>6}\n",
      "GiB of the fullest rank ", " seconds of a step, nothing overlapped", "all", "weights", "grads",
      "states", "activ.", "again", "compute", "send", "bubble");
  for (const align::Candidate& c : all) {
    text += fmt::format("{}  {}\n       {}\n", memory_text(c.memory), cost_text(c.cost),
                        c.parallel.ranks() == 1 ? "single device" : to_string(c.parallel));
  }
  return text;
}

std::string balance_text(const PlanVerb& verb, align::Blocks& blocks, const align::Parallel& p) {
  const auto balanced = align::balance(blocks, p, verb.memory * gibi);
  if (!balanced)
    throw Error(
        "--balance: no cut of '{}' that fits into {} GiB was found; expected more --memory-per-device",
        to_string(p), verb.memory);
  std::vector<std::string> stages;
  for (const align::StageLayers& stage : balanced->stages) stages.push_back(align::to_string(stage));
  return fmt::format(
      "the first, with layers and recompute of each stage balanced (within {:.0f}% of the best there can "
      "be)\n"
      "{}  {}\n       layers of the stages: {}\n",
      100 * balanced->gap, memory_text(balanced->memory), cost_text(balanced->cost), fmt::join(stages, "; "));
}

align::Training training_of(const PlanVerb& verb, std::int64_t devices) {
  align::Training t;
  t.model = align::load_model(verb.model);
  t.batch = {verb.micro_batch, verb.length};
  t.sequences = verb.sequences.value_or(devices * verb.micro_batch);
  t.devices = {verb.tflops * tera, verb.node, verb.in_node * giga, verb.between_nodes * giga};
  return t;
}

// Those that were given, or the fastest that fit.
/// @param text  says how many there are
std::vector<align::Candidate> chosen(const PlanVerb& verb, align::Blocks& blocks, std::int64_t devices,
                                     std::string& text) {
  std::vector<align::Candidate> all;
  for (const std::string& given : verb.parallel) {
    const align::Parallel p = align::parse_parallel(given);
    try {
      const align::StagedModel staged(blocks, p);
      all.push_back({p, staged.memory(), staged.cost()});
    } catch (const Error& e) {
      throw Error("--parallel '{}': {}", given, e.what());
    }
  }
  if (!all.empty()) return all;
  const double memory = verb.memory * gibi;
  const align::Enumeration found = enumerate(blocks, devices, memory, static_cast<std::size_t>(verb.most));
  if (found.valid == 0)
    throw Error(
        "no strategy of {} devices is valid for {} sequences of {} tokens; expected other --devices, "
        "--sequences or --length",
        devices, blocks.training().sequences, blocks.training().batch.length);
  if (found.fitting == 0)
    throw Error(
        "none of {} valid strategies fits into {} GiB of a device: the smallest needs {:.1f}; expected "
        "more --devices or --memory-per-device",
        found.valid, verb.memory, found.least_memory / gibi);
  text = fmt::format("{} valid strategies, {} of them fit into {} GiB; the fastest {}:\n", found.valid,
                     found.fitting, verb.memory, found.fastest.size());
  return found.fastest;
}

void declare(PlanVerb& verb, Options& options) {
  options.option("--model", verb.model, "what is trained, as replay takes it").holds("M").required();
  options.option("--devices", verb.devices, "how many there are").within(1LL, 4096LL).holds("N");
  options.option("--memory-per-device", verb.memory, "GiB that a rank may need").within(1e-6, 1e6).holds("G");
  options.option("--parallel", verb.parallel, "a strategy that is used; instead of the fastest ones that fit")
      .holds("KEY=N,..");
  options.flag("--balance", verb.balance,
               "layers and recompute of each stage of the first strategy, balanced");
  options.option("--length", verb.length, "tokens of a sequence; 4096 by default")
      .within(1LL, 1LL << 19)
      .holds("N");
  options.option("--micro-batch", verb.micro_batch, "sequences of a micro-batch; 1 by default")
      .within(1LL, 1LL << 19)
      .holds("N");
  options.option("--sequences", verb.sequences, "of a step; by default a micro-batch for each device")
      .within(1LL, 1LL << 19)
      .holds("N");
  options.option("--most", verb.most, "how many of the fastest strategies the stages cover; 8 by default")
      .within(1LL, 1000LL)
      .holds("N");
  options.option("--changed", verb.changed, "only stages that this change touches").holds("OLD:NEW");
  options.option("-o,--output", verb.output, "write the stages as a plan that assay align runs")
      .holds("PLAN");
  options
      .option("--tflops", verb.tflops, "10^12 operations that a device reaches in a second; 400 by default")
      .within(1e-6, 1e6)
      .holds("X");
  options.option("--node", verb.node, "devices of a node; 8 by default").within(1LL, 4096LL).holds("N");
  options.option("--in-node", verb.in_node, "GB/s of a device to others of its node; 450 by default")
      .within(1e-6, 1e6)
      .holds("X");
  options.option("--between-nodes", verb.between_nodes, "GB/s of a device to other nodes; 50 by default")
      .within(1e-6, 1e6)
      .holds("X");
}

std::int64_t device_count(const PlanVerb& verb) {
  if (verb.parallel.empty() && (!verb.devices || verb.memory <= 0))
    throw Error("expected --devices and --memory-per-device, of which the strategies follow, or --parallel");
  if (verb.balance && verb.memory <= 0) throw Error("--balance needs --memory-per-device");
  const std::int64_t given =
      verb.parallel.empty() ? *verb.devices : align::parse_parallel(verb.parallel.front()).ranks();
  for (const std::string& text : verb.parallel) {
    const std::int64_t ranks = align::parse_parallel(text).ranks(), devices = verb.devices.value_or(given);
    if (ranks != devices) throw Error("--parallel '{}': has {} ranks; expected {}", text, ranks, devices);
  }
  return given;
}

int run(const PlanVerb& verb, const Options& options) {
  const std::int64_t devices = device_count(verb);
  const auto changed =
      verb.changed.empty() ? std::set<std::string_view>() : align::changed_parts(verb.changed);
  align::Blocks blocks(training_of(verb, devices));
  std::string text;
  const std::vector<align::Candidate> strategies = chosen(verb, blocks, devices, text);
  text += table_text(strategies);
  if (verb.balance) text += balance_text(verb, blocks, strategies.front().parallel);
  std::vector<align::Parallel> used;
  for (const align::Candidate& c : strategies) used.push_back(c.parallel);
  const align::Work small = {.model = align::small_model(verb.model)};
  const align::Cover cover = align::cover(blocks.training(), used, small, changed);
  text += align::plan_text({cover.rungs}, {.command = options.command(),
                                           .subject = "replay, or that of the plan",
                                           .reference = "replay, or that of the plan",
                                           .model = small.model,
                                           .target = "what these use",
                                           .precision = small.precision});
  text += fmt::format("they have {} of {} paths of these strategies{}{}{}\n",
                      cover.paths.size() - cover.missing.size(), cover.paths.size(),
                      cover.is_smallest ? ", and no fewer stages do" : "",
                      cover.missing.empty() ? "" : "; not ", fmt::join(cover.missing, ", "));
  if (!verb.output.empty())
    write_text(verb.output, to_toml(small, cover.rungs, printable(options.command())));
  if (verb.output != "-") fmt::print("{}", text);
  return cover.missing.empty() ? 0 : 1;
}

}  // namespace

namespace verbs {
extern constexpr Verb plan = {
    "plan", "find which strategies are valid and what they cost, and the stages that cover them",
    "assay plan --model telechat3-438b --devices 4096 --memory-per-device 60 -o plan.toml",
    declared<PlanVerb>};
}

}  // namespace assay
