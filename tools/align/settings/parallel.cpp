#include "assay/align/settings/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "assay/align/settings/strategy.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

std::vector<SettingsKey<Parallel>> parallel_keys() {
  std::vector<SettingsKey<Parallel>> keys;
  for (const Strategy& s : strategies()) keys.push_back(s.setting);
  return keys;
}

}  // namespace

Parallel parse_parallel(std::string_view text, std::string_view option) {
  Parallel parallel;
  read_settings(option, parallel_keys(), split(text, ','), parallel);
  if (parallel.ranks() > largest_world_size)  // each key is at most that: no overflow
    throw Error("{}: tp {} times cp {} times dp {} times pp {} is more than {} ranks", option, parallel.tp,
                parallel.cp, parallel.dp, parallel.pp, largest_world_size);
  return parallel;
}

std::string to_string(const Parallel& parallel) {
  return fmt::format("{}", fmt::join(written_settings(parallel_keys(), parallel, Parallel()), ","));
}

}  // namespace assay::align
