#include "assay/align/ladder/rung.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "assay/align/model/model.h"
#include "assay/align/step/training_step.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

StepSettings settings_of(const Work& w, const Parallel& p) {
  return {.batch = {w.sequences, w.length, w.prompt}, .micro_batches = w.micro_batches, .parallel = p};
}

SwitchSet joined(SwitchSet a, const SwitchSet& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// What no model can be trained with.
std::string general_objection(const Work& work, const Parallel& p) {
  if (p.dp > 1 && work.micro_batches % p.dp != 0)
    return fmt::format("{} micro-batches do not divide over dp = {}; expected a multiple", work.micro_batches,
                       p.dp);
  const std::int64_t below = p.tp * p.cp * p.dp, needed = p.ep * p.etp;
  if (below % needed != 0)
    return fmt::format("ep {} times etp {} does not divide the {} ranks of tp, cp and dp", p.ep, p.etp,
                       below);
  return "";
}

class Builder {
 public:
  Builder(const Work& work, const Parallel& target)
      : work_(work), target_(target), dimensions_(dimensions_of(target)) {}

  std::vector<Rung> alone() {
    add("single device", Rung::Kind::single, work_, {});
    for (const SwitchSet& d : dimensions_) add_alone(d);
    return std::move(rungs_);
  }

  std::vector<Rung> run() {
    rungs_ = alone();
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      for (std::size_t k = i + 1; k < dimensions_.size(); ++k)
        add(joined(dimensions_[i], dimensions_[k]), Rung::Kind::pair);
    }
    add(switches_of(target_), Rung::Kind::full);
    add_larger();
    return std::move(rungs_);
  }

 private:
  // First its main switch, then with what belongs to it.
  void add_alone(const SwitchSet& dimension) {
    SwitchSet on;
    for (const Switch& s : switches()) {
      if (!dimension.contains(s.name)) continue;
      on.insert(s.name);
      add(on, Rung::Kind::dimension);
    }
  }

  // With what it cannot be without: experts need ranks to lie on.
  void add(const SwitchSet& on, Rung::Kind kind) {
    const SwitchSet all = switches_of(target_);
    for (const SwitchSet& more : std::initializer_list<SwitchSet>{
             {}, {"dp"}, {"tp"}, {"cp"}, {"dp", "tp"}, {"dp", "cp"}, {"tp", "cp"}, {"dp", "tp", "cp"}}) {
      const SwitchSet with = joined(on, more);
      const Parallel p = with_only(target_, with);
      if (!std::ranges::includes(all, more) || !objection(work_, p).empty()) continue;
      return add(to_string(with), kind, work_, p);
    }
  }

  void add(const std::string& name, Rung::Kind kind, const Work& work, const Parallel& p) {
    const bool is_known =
        std::ranges::any_of(rungs_, [&](const Rung& r) { return r.parallel == p && r.work == work; });
    if (!is_known) rungs_.push_back({name, kind, work, p});
  }

  void add_larger() {
    Work more = work_;
    more.steps = work_.steps + 1;
    add_larger("full, more steps", more, target_);
    more = work_;
    more.steps = 1;  // several were in the stages before
    more.sequences *= 2;
    add_larger("full, more tokens", more, target_);
    if (target_.dp > 1) {
      Parallel wider = target_;
      wider.dp *= 2;
      more.sequences = work_.sequences;
      const std::int64_t enough = std::max(work_.micro_batches, usual_micro_batches(work_, wider));
      more.micro_batches = (enough + wider.dp - 1) / wider.dp * wider.dp;
      add_larger("full, more ranks", more, wider);
    }
    if (work_.model.empty()) return;
    more.sequences = work_.sequences;
    more.micro_batches = work_.micro_batches;
    more.model += fmt::format(",layers={}", 2 * load_model(work_.model).layers);
    add_larger("full, more layers", more, target_);
  }

  void add_larger(const std::string& name, const Work& work, const Parallel& p) {
    if (objection(work, p).empty()) add(name, Rung::Kind::larger, work, p);
  }

  const Work& work_;
  const Parallel& target_;
  const std::vector<SwitchSet> dimensions_;
  std::vector<Rung> rungs_;
};

}  // namespace

std::string folder_of(const Rung& rung) {
  std::string name;
  for (const char c : rung.name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80)  // letters of any script, in UTF-8
      name += c;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  return name.empty() ? "stage" : name;
}

std::string objection(const Work& work, const Parallel& p) {
  if (work.model.empty()) return general_objection(work, p);
  try {
    check(load_model(work.model), settings_of(work, p));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

std::vector<Rung> ladder_of(const Work& work, const Parallel& target) {
  const std::string why = objection(work, target);
  if (!why.empty()) throw Error("--parallel '{}': {}", to_string(target), why);
  return Builder(work, target).run();
}

std::vector<Rung> stages_alone(const Work& work, const Parallel& target) {
  return Builder(work, target).alone();
}

std::int64_t usual_micro_batches(const Work& work, const Parallel& target) {
  constexpr std::int64_t most = 16;  // of each rank
  Work w = work;
  for (std::int64_t each = 2; each <= most; ++each) {
    w.micro_batches = std::max<std::int64_t>(each * target.dp, 3);
    if (objection(w, target).empty()) return w.micro_batches;
  }
  return 2 * target.dp;
}

double cost_of(const Rung& r) {
  double cost = 1;
  for (const std::int64_t n : {r.work.steps, r.work.micro_batches, r.work.sequences, r.work.length})
    cost *= static_cast<double>(n);
  return cost;
}

}  // namespace assay::align
