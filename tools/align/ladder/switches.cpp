#include "assay/align/ladder/switches.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay::align {

const std::vector<Switch>& switches() {
  using P = Parallel;
  static const std::vector<Switch> all = {
      {"tp", "tp", [](const P& p) { return p.tp > 1; }, [](P& p, const P& t) { p.tp = t.tp; }, {}},
      {"sp", "tp", [](const P& p) { return p.sp; }, [](P& p, const P&) { p.sp = true; }, {"tp"}},
      {"cp",
       "cp",
       [](const P& p) { return p.cp > 1; },
       [](P& p, const P& t) {
         p.cp = t.cp;
         p.context = t.context;
       },
       {}},
      {"dp", "dp", [](const P& p) { return p.dp > 1; }, [](P& p, const P& t) { p.dp = t.dp; }, {}},
      {"zero",
       "dp",
       [](const P& p) { return p.zero > 0; },
       [](P& p, const P& t) { p.zero = t.zero; },
       {"dp", "cp"}},
      {"redistribute",
       "dp",
       [](const P& p) { return p.redistribute; },
       [](P& p, const P&) { p.redistribute = true; },
       {"dp"}},
      {"pp",
       "pp",
       [](const P& p) { return p.pp > 1; },
       [](P& p, const P& t) {
         p.pp = t.pp;
         if (t.vpp == 1) p.stages = t.stages;
       },
       {}},
      {"schedule",
       "pp",
       [](const P& p) { return p.vpp > 1 || p.schedule != Schedule::one_f_one_b; },
       [](P& p, const P& t) {
         p.vpp = t.vpp;
         p.schedule = t.schedule;
         p.stages = t.stages;
       },
       {"pp"}},
      {"ep",
       "ep",
       [](const P& p) { return p.ep > 1; },
       [](P& p, const P& t) {
         p.ep = t.ep;
         p.dispatch = t.dispatch;
         p.node = t.node;
       },
       {}},
      {"etp", "ep", [](const P& p) { return p.etp > 1; }, [](P& p, const P& t) { p.etp = t.etp; }, {}},
      {"placement",
       "ep",
       [](const P& p) { return p.placement != ExpertPlacement::fixed; },
       [](P& p, const P& t) { p.placement = t.placement; },
       {"ep"}},
      {"recompute",
       "recompute",
       [](const P& p) { return p.recompute != Recompute::none; },
       [](P& p, const P& t) { p.recompute = t.recompute; },
       {}},
      {"swap", "swap", [](const P& p) { return p.swap; }, [](P& p, const P&) { p.swap = true; }, {}},
  };
  return all;
}

SwitchSet switches_of(const Parallel& p) {
  SwitchSet on;
  for (const Switch& s : switches()) {
    if (s.is_on(p)) on.insert(s.name);
  }
  return on;
}

Parallel with_only(const Parallel& target, const SwitchSet& on) {
  Parallel p;
  p.reduce = target.reduce;
  for (const Switch& s : switches()) {
    if (on.contains(s.name)) s.turn_on(p, target);
  }
  return p;
}

SwitchSet supported(SwitchSet on) {
  for (const Switch& s : switches()) {
    const bool has_support =
        s.needs.empty() || std::ranges::any_of(s.needs, [&](std::string_view n) { return on.contains(n); });
    if (!has_support) on.erase(s.name);
  }
  return on;
}

std::vector<SwitchSet> dimensions_of(const Parallel& p) {
  std::vector<SwitchSet> all;
  std::string_view last;
  for (const Switch& s : switches()) {
    if (!s.is_on(p)) continue;
    if (all.empty() || s.dimension != last) all.emplace_back();
    last = s.dimension;
    all.back().insert(s.name);
  }
  return all;
}

std::string to_string(const SwitchSet& on) {
  std::string text;
  for (const Switch& s : switches()) {
    if (on.contains(s.name)) text += fmt::format("{}{}", text.empty() ? "" : " + ", s.name);
  }
  return text.empty() ? "a single device" : text;
}

}  // namespace assay::align
