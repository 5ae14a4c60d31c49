#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../dumps/scratch.h"
#include "assay/compare/diff.h"
#include "memory_dump.h"

namespace assay {

inline DiffOptions options(std::string_view rules = "", std::vector<std::string> policies = {"telechat3"}) {
  DiffOptions o;
  for (const std::string& p : policies) o.policies.push_back(load_policy(p));
  if (!rules.empty()) {
    const Scratch scratch;
    o.rules = Rules::load(scratch.write("rules.toml", rules));
  }
  return o;
}

inline const Finding& at(const Report& r, std::string_view name) {
  for (const Finding& f : r.findings) {
    if (f.name == name) return f;
  }
  throw Error("no finding '{}'", name);
}

inline Identity identity(Phase phase, std::string module, std::string slot, std::string arg,
                         std::int64_t micro_batch = 0) {
  return {0, micro_batch, phase, std::move(module), std::move(slot), std::move(arg), 0};
}

}  // namespace assay
