#include "assay/align/settings/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "assay/align/settings/settings_keys.h"

namespace assay::align {
namespace {

// More ranks than any replay on a machine can have.
constexpr std::int64_t most_ranks = 4096;

using Key = SettingsKey<Parallel>;

Key count(std::string_view name, std::int64_t Parallel::*field) {
  return integer_key(name, field, 1, most_ranks);
}

Key stages() {
  return {"stages",
          [](Parallel& p, std::string_view text) {
            if (text.empty()) return std::string("layers of each stage, as in 3+2");
            p.stages.clear();
            for (const std::string_view piece : split(text, '+')) {
              const std::string expected = read_integer(piece, 0, most_ranks, p.stages.emplace_back());
              if (!expected.empty()) return "layers of each stage, as in 3+2, each " + expected;
            }
            return std::string();
          },
          [](const Parallel& p) { return fmt::format("{}", fmt::join(p.stages, "+")); }};
}

const std::vector<Key>& parallel_keys() {
  static const std::vector<Key> all = {
      count("tp", &Parallel::tp),
      flag_key("sp", &Parallel::sp),
      count("cp", &Parallel::cp),
      choice_key("context", &Parallel::context, {"ring", "ulysses"}),
      count("dp", &Parallel::dp),
      integer_key("zero", &Parallel::zero, 0, 3),
      count("pp", &Parallel::pp),
      count("vpp", &Parallel::vpp),
      choice_key("schedule", &Parallel::schedule, {"1f1b", "interleaved", "zero-bubble", "dualpipe"}),
      stages(),
      count("ep", &Parallel::ep),
      choice_key("dispatch", &Parallel::dispatch, {"alltoall", "allgather", "hierarchical"}),
      count("node", &Parallel::node),
      count("etp", &Parallel::etp),
      choice_key("placement", &Parallel::placement, {"fixed", "dynamic"}),
      flag_key("redistribute", &Parallel::redistribute),
      choice_key("recompute", &Parallel::recompute, {"none", "full", "mla", "permute", "activation"}),
      flag_key("swap", &Parallel::swap),
      choice_key("reduce", &Parallel::reduce, {"ranks", "ring", "tree"}),
  };
  return all;
}

}  // namespace

Parallel parse_parallel(std::string_view text, std::string_view option) {
  Parallel parallel;
  read_settings(option, parallel_keys(), split(text, ','), parallel);
  if (parallel.ranks() > most_ranks)  // each key is at most that: no overflow
    throw Error("{}: tp {} times cp {} times dp {} times pp {} is more than {} ranks", option, parallel.tp,
                parallel.cp, parallel.dp, parallel.pp, most_ranks);
  return parallel;
}

std::string to_string(const Parallel& parallel) {
  return fmt::format("{}", fmt::join(written_settings(parallel_keys(), parallel, Parallel()), ","));
}

}  // namespace assay::align
