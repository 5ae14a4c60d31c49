#include "assay/align/settings/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

using P = Parallel;
using Placeholder = Strategy::Placeholder;

SettingsKey<P> ranks_key(std::string_view name, std::int64_t P::*field) {
  return integer_key(name, field, 1, largest_world_size);
}

SettingsKey<P> stages_key() {
  return {"stages",
          [](P& p, std::string_view text) {
            if (text.empty()) return std::string("layers of each stage, as in 3+2");
            p.stages.clear();
            for (const std::string_view piece : split(text, '+')) {
              const std::string expected =
                  read_integer(piece, 0, largest_world_size, p.stages.emplace_back());
              if (!expected.empty()) return "layers of each stage, as in 3+2, each " + expected;
            }
            return std::string();
          },
          [](const P& p) { return fmt::format("{}", fmt::join(p.stages, "+")); }};
}

// "sp", "placement=dynamic"
std::string named(const Strategy& s, const Parallel& p) {
  const std::string value = s.value(p);
  const bool is_number = std::ranges::all_of(value, [](unsigned char c) { return std::isdigit(c) != 0; });
  return std::string(s.key()) + (is_number ? "" : "=" + value);
}

}  // namespace

const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      {.setting = ranks_key("tp", &P::tp),
       .values = "N",
       .help = "tensor parallel",
       .part = "tp",
       .dimension = "tp",
       .lacking = "tp > 1",
       .placeholder = Placeholder::value},
      {.setting = flag_key("sp", &P::sp),
       .values = "0|1",
       .help = "sequence parallel between the regions of tp",
       .part = "sp",
       .dimension = "tp",
       .needs = {"tp"},
       .lacking = "sp=1",
       .placeholder = Placeholder::value},
      {.setting = ranks_key("cp", &P::cp),
       .values = "N",
       .help = "context parallel",
       .part = "cp",
       .dimension = "cp",
       .lacking = "cp > 1",
       .placeholder = Placeholder::value},
      {.setting = choice_key("context", &P::context, {"ring", "ulysses"}),
       .values = "ring|ulysses",
       .help = "how attention sees a whole sequence",
       .part = "cp",
       .switches = false,
       .lacking = "its context"},
      {.setting = ranks_key("dp", &P::dp),
       .values = "N",
       .help = "data parallel",
       .part = "dp",
       .dimension = "dp",
       .lacking = "dp > 1",
       .placeholder = Placeholder::value},
      {.setting = integer_key("zero", &P::zero, 0, 3),
       .values = "0|1|2|3",
       .help = "shards over dp: 1 states, 2 and gradients, 3 and parameters",
       .part = "zero",
       .dimension = "dp",
       .needs = {"dp", "cp"},
       .lacking = "zero",
       .placeholder = Placeholder::value},
      {.setting = ranks_key("pp", &P::pp),
       .values = "N",
       .help = "pipeline parallel",
       .part = "pp",
       .dimension = "pp",
       .lacking = "pp > 1",
       .placeholder = Placeholder::value},
      {.setting = ranks_key("vpp", &P::vpp),
       .values = "N",
       .help = "chunks of layers of a pipeline rank",
       .part = "schedule",
       .lacking = "vpp > 1",
       .placeholder = Placeholder::value},
      {.setting = choice_key("schedule", &P::schedule, {"1f1b", "interleaved", "zero-bubble", "dualpipe"}),
       .values = "1f1b|interleaved|zero-bubble|dualpipe",
       .help = "order of micro-batches",
       .part = "schedule",
       .dimension = "pp",
       .needs = {"pp"},
       .is_refused_alone = false},
      {.setting = stages_key(),
       .values = "N+N+..",
       .help = "layers of each stage; else even",
       .part = "pp",
       .switches = false},
      {.setting = ranks_key("ep", &P::ep),
       .values = "N",
       .help = "expert parallel, over the ranks of tp, cp and dp",
       .part = "ep",
       .dimension = "ep",
       .lacking = "ep > 1",
       .placeholder = Placeholder::value},
      {.setting = choice_key("dispatch", &P::dispatch, {"alltoall", "allgather", "hierarchical"}),
       .values = "alltoall|allgather|hierarchical",
       .help = "how tokens find their experts",
       .part = "ep",
       .switches = false,
       .lacking = "its dispatch"},
      {.setting = ranks_key("node", &P::node),
       .values = "N",
       .help = "ranks of ep that share a node, of dispatch=hierarchical",
       .part = "ep",
       .switches = false},
      {.setting = ranks_key("etp", &P::etp),
       .values = "N",
       .help = "expert tensor parallel",
       .part = "etp",
       .dimension = "ep",
       .lacking = "etp > 1",
       .placeholder = Placeholder::value},
      {.setting = choice_key("placement", &P::placement, {"fixed", "dynamic"}),
       .values = "fixed|dynamic",
       .help = "whether experts move to balance tokens",
       .part = "placement",
       .dimension = "ep",
       .needs = {"ep"}},
      {.setting = flag_key("redistribute", &P::redistribute),
       .values = "0|1",
       .help = "samples change ranks of dp to balance attention",
       .part = "redistribute",
       .dimension = "dp",
       .needs = {"dp"}},
      {.setting = choice_key("recompute", &P::recompute, {"none", "full", "mla", "permute", "activation"}),
       .values = "none|full|mla|permute|activation",
       .help = "what backward computes again",
       .part = "recompute",
       .dimension = "recompute",
       .lacking = "recompute",
       .placeholder = Placeholder::is_on},
      {.setting = flag_key("swap", &P::swap),
       .values = "0|1",
       .help = "activations leave the device until backward",
       .part = "swap",
       .dimension = "swap"},
      {.setting = choice_key("reduce", &P::reduce, {"ranks", "ring", "tree"}),
       .values = "ranks|ring|tree",
       .help = "the order in which collectives add",
       .part = ""},
  };
  return all;
}

bool is_on(std::string_view part, const Parallel& p) {
  return std::ranges::any_of(
      strategies(), [&](const Strategy& s) { return s.part == part && s.switches && !s.is_default(p); });
}

std::vector<std::string_view> lacking(const Parallel& shown, const Parallel& p) {
  std::vector<std::string_view> all;
  for (const Strategy& s : strategies()) {
    if (s.lacking.empty()) continue;
    const bool lacks = s.switches ? !s.is_default(shown) && s.is_default(p)
                                  : is_on(s.part, shown) && is_on(s.part, p) && s.value(shown) != s.value(p);
    if (lacks) all.push_back(s.lacking);
  }
  return all;
}

void check_needs(const Parallel& p) {
  for (const Strategy& s : strategies()) {
    const bool has_one =
        s.needs.empty() || std::ranges::any_of(s.needs, [&](std::string_view n) { return is_on(n, p); });
    if (s.is_refused_alone && !s.is_default(p) && !has_one)
      throw Error("{} needs {} > 1", named(s, p), fmt::join(s.needs, " or "));
  }
}

std::string strategies_text() {
  std::string text;
  for (const Strategy& s : strategies()) text += fmt::format("\n{}={}: {}", s.key(), s.values, s.help);
  return text;
}

}  // namespace assay::align
