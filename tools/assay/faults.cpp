#include "assay/align/faults/fault.h"

#include <fmt/format.h>

#include "verb.h"

namespace assay {
namespace {

struct FaultsVerb {
  std::string id;  ///< empty: all
};

std::string quoted(std::string_view text) {
  return text.find_first_of("* ,") == std::string_view::npos ? std::string(text) : fmt::format("'{}'", text);
}

// The options that a replay needs for the fault to show.
std::string options_of(const align::FaultConditions& c) {
  std::string all = fmt::format("--model {} --precision {} --steps 2", quoted(c.model), c.precision);
  if (c.micro_batches != 1) all += fmt::format(" --micro-batches {}", c.micro_batches);
  if (c.sequences != 1) all += fmt::format(" --sequences {}", c.sequences);
  if (c.optimizer != "adamw") all += fmt::format(" --optimizer {}", quoted(c.optimizer));
  if (c.loss_average != "micro-batches") all += fmt::format(" --loss-average {}", c.loss_average);
  if (c.prompt > 0) all += fmt::format(" --prompt {}", c.prompt);
  return all;
}

void describe(const align::Fault& f) {
  const std::string options = options_of(f.conditions);
  fmt::print("{} ({}): {}\n  source    {}\n  kind      {}\n", f.id, f.area, f.title, f.source, name(f.kind));
  fmt::print("  shows in  {}, {}{}\n", f.answer.phase, f.answer.tensor,
             f.answer.dimension.empty() ? "" : fmt::format(", along {}", f.answer.dimension));
  fmt::print(
      "  plant it  assay replay {0}{1} --fault {2} --dump faulty\n"
      "  right is  assay replay {0} --dump right\n"
      "  find it   assay diff faulty right\n",
      options, f.conditions.parallel.empty() ? "" : " --parallel " + quoted(f.conditions.parallel), f.id);
}

void declare(FaultsVerb& verb, Options& options) {
  options.option("id", verb.id, "of a fault").holds("ID");
}

int run(const FaultsVerb& verb, const Options&) {
  if (!verb.id.empty()) {
    describe(align::find_fault(verb.id));
    return 0;
  }
  for (const align::Fault& f : align::fault_catalogue())
    fmt::print("{}  {:<10}  {:<8} {}\n", f.id, f.area, name(f.kind), f.title);
  fmt::print("{} faults; assay faults ID says how to plant one\n", align::fault_catalogue().size());
  return 0;
}

}  // namespace

namespace verbs {
extern constexpr Verb faults = {"faults", "list the faults that a replay can be given, or describe one",
                                "assay faults F001", declared<FaultsVerb>};
}

}  // namespace assay
