#include "assay/align/ladder/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <semaphore>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/passed_before.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

using State = RungResult::State;

bool includes(const SwitchSet& all, const SwitchSet& part) {
  return std::ranges::includes(all, part);
}

bool is_same(const Rung& a, const Rung& b) {
  return a.parallel == b.parallel && a.work == b.work;
}

// One of a limited number, taken for a while.
class HeldPlace {
 public:
  explicit HeldPlace(std::counting_semaphore<>& places) : places_(places) { places_.acquire(); }
  ~HeldPlace() { places_.release(); }
  HeldPlace(const HeldPlace&) = delete;
  HeldPlace& operator=(const HeldPlace&) = delete;

 private:
  std::counting_semaphore<>& places_;
};

class Walk {
 public:
  Walk(const LadderPlan& plan, Opponents opponents, const CheckOptions& options,
       const std::function<void(const Rung&, const RungResult*)>& tell)
      : plan_(plan),
        opponents_(opponents),
        check_(opponents, options),
        log_(options.log),
        tell_(tell),
        passed_before_(plan.cache),
        jobs_(opponents.subject.runs_beside() && opponents.reference.runs_beside() ? plan.jobs : 1),
        places_(static_cast<std::ptrdiff_t>(jobs_)) {}

  LadderResult run() {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t k = 0; k < plan_.rungs.size(); ++k) {
      const Rung& rung = plan_.rungs[k];
      const auto is_it = [&](const Rung& r) { return r.name == rung.name; };
      if (std::ranges::any_of(result_.rungs, is_it, &RungResult::rung)) continue;  // a search came to it
      look_ahead(k);
      const std::size_t at = climb(rung);
      if (result_.rungs[at].state == State::failed) localize(at);
    }
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(result_);
  }

 private:
  std::size_t climb(const Rung& rung) {
    tell_(rung, nullptr);
    log_.of_stage(folder_of(rung)).debug("begins: {}", rung.name);
    result_.rungs.push_back(result_of(rung));
    log_result(result_.rungs.back());
    tell_(rung, &result_.rungs.back());
    return result_.rungs.size() - 1;
  }

  void log_result(const RungResult& r) const {
    log_.of_stage(folder_of(r.rung))
        .info("{} after {:.3f} s{}{}{}", name(r.state), r.seconds,
              r.from_cache ? ", without a run: it passed before with the same content (passed.txt)" : "",
              r.rule.empty() ? "" : ", by rule " + r.rule, r.reason.empty() ? "" : ": " + r.reason);
  }

  // Folders and reports go by names; a search may come to the same strategies with other work.
  bool is_taken(const Rung& rung) const {
    const auto has_folder = [&](const Rung& other) { return folder_of(other) == folder_of(rung); };
    return std::ranges::any_of(plan_.rungs, has_folder) ||
           std::ranges::any_of(result_.rungs, has_folder, &RungResult::rung);
  }

  // Stages that will be run, if nothing comes between, are run beside the one that is waited for; one more
  // takes the place of the first that ends.
  void look_ahead(std::size_t k) {
    if (jobs_ == 1) return;
    for (std::size_t next = k; next < std::min(k + jobs_ + 1, plan_.rungs.size()); ++next) {
      const Rung& rung = plan_.rungs[next];
      if (ahead_.contains(rung.name) || known_beforehand(rung)) continue;
      ahead_[rung.name] = std::async(std::launch::async, [this, &rung] {
        const HeldPlace place(places_);
        return check_.run(rung);
      });
    }
  }

  // What needs no run.
  std::optional<RungResult> known_beforehand(const Rung& rung) const {
    RungResult result = {.rung = rung};
    result.reason = opponents_.subject.objection(rung);
    if (!result.reason.empty()) {
      result.state = State::left_out;
      return result;
    }
    for (const Divergence& d : result_.divergences) {
      if (!includes(switches_of(rung.parallel), d.strategies)) continue;
      result.state = State::held;
      result.reason = fmt::format("{} fails already", to_string(d.strategies));
      return result;
    }
    if (!passed_before_.has(content_of(rung))) return std::nullopt;
    result.from_cache = true;
    return result;
  }

  RungResult result_of(const Rung& rung) {
    if (auto known = known_beforehand(rung)) return *std::move(known);
    const auto started = ahead_.find(rung.name);
    RungResult result = started == ahead_.end() ? check_.run(rung) : started->second.get();
    if (started != ahead_.end()) ahead_.erase(started);
    const bool is_configured = std::ranges::all_of(result.configuration, &ConfigurationCheck::passed);
    if (result.state == State::passed && is_configured) passed_before_.add(content_of(rung));
    return result;
  }

  // All that decides whether it passes.
  std::string content_of(const Rung& rung) const {
    const std::string subject = opponents_.subject.content(rung),
                      reference = opponents_.reference.content(rung);
    if (subject.empty() || reference.empty()) return "";
    const Work& w = rung.work;
    return fmt::format("{}\n{}\n{}\n{} {} {} {} {} {} {} {} {} {} {}", subject, reference, plan_.judged_by,
                       w.precision, w.optimizer, w.loss_average, w.prompt, w.steps, w.micro_batches,
                       w.sequences, w.length, w.seed, to_string(rung.parallel), w.model);
  }

  // Takes strategies back one at a time, as long as what is left still fails.
  void localize(std::size_t failing) {
    std::vector<std::string> passing;
    for (bool smaller = true; smaller;) {
      smaller = false;
      passing.clear();
      const SwitchSet all = switches_of(result_.rungs[failing].rung.parallel);
      for (const std::string_view taken_back : all) {
        SwitchSet rest = all;
        rest.erase(taken_back);
        log_.of_stage(folder_of(result_.rungs[failing].rung)).info("does it fail without {}?", taken_back);
        const std::optional<std::size_t> without = tried(result_.rungs[failing].rung, supported(rest));
        if (!without) continue;
        if (result_.rungs[*without].state == State::passed) passing.push_back(to_string(supported(rest)));
        if (result_.rungs[*without].state != State::failed) continue;
        failing = *without;
        smaller = true;
        break;
      }
    }
    add_divergence(failing, passing);
  }

  // The rung with these strategies alone, run if it was not; nothing if there is no such.
  std::optional<std::size_t> tried(const Rung& rung, const SwitchSet& on) {
    Rung smaller = rung;
    smaller.parallel = with_only(rung.parallel, on);
    smaller.name = to_string(on);
    smaller.kind = on.empty() ? Rung::Kind::single : Rung::Kind::stated;
    const auto is_it = [&](const Rung& r) { return is_same(r, smaller); };
    const auto known = std::ranges::find_if(result_.rungs, is_it, &RungResult::rung);
    if (known != result_.rungs.end()) return known - result_.rungs.begin();
    const auto planned = std::ranges::find_if(plan_.rungs, is_it);
    if (planned != plan_.rungs.end()) return climb(*planned);
    const std::string name = smaller.name;
    for (int twin = 2; is_taken(smaller); ++twin) smaller.name = fmt::format("{} ({})", name, twin);
    if (!objection(smaller.work, smaller.parallel).empty() || !opponents_.subject.objection(smaller).empty())
      return std::nullopt;
    return climb(smaller);
  }

  void add_divergence(std::size_t failing, const std::vector<std::string>& passing) {
    const RungResult& rung = result_.rungs[failing];
    const auto known = [&](const Divergence& d) { return d.strategies == switches_of(rung.rung.parallel); };
    if (std::ranges::any_of(result_.divergences, known)) return;
    std::optional<Divergence> d = divergence_of(rung, traffic_of(rung.rung));
    if (!d) return;
    d->passes = fmt::format("{}", fmt::join(passing, ", "));
    log_.of_stage(folder_of(rung.rung)).info("the smallest set that fails: {}", headline(*d));
    result_.divergences.push_back(*std::move(d));
    result_.failing.push_back(failing);
  }

  const LadderPlan& plan_;
  Opponents opponents_;
  RungCheck check_;
  const Log log_;
  const std::function<void(const Rung&, const RungResult*)>& tell_;
  PassedBefore passed_before_;
  LadderResult result_;
  const std::size_t jobs_;
  std::counting_semaphore<> places_;                      ///< for stages that are run ahead
  std::map<std::string, std::future<RungResult>> ahead_;  ///< of stages that are running, by name
};

}  // namespace

std::vector<const ConfigurationCheck*> LadderResult::configuration() const {
  std::vector<const ConfigurationCheck*> all;
  for (const ConfigurationCheck& c : files) all.push_back(&c);
  for (const RungResult& r : rungs) {
    for (const ConfigurationCheck& c : r.configuration) all.push_back(&c);
  }
  return all;
}

int LadderResult::exit_status() const {
  const auto is = [&](State s) {
    return std::ranges::any_of(rungs, [s](const RungResult& r) { return r.state == s; });
  };
  const bool configured =
      std::ranges::all_of(configuration(), [](const ConfigurationCheck* c) { return c->passed; });
  if (is(State::failed) || !configured) return is(State::trouble) ? 2 : 1;
  if (is(State::trouble) || !is(State::passed)) return 2;
  return is(State::left_out) ? 1 : 0;
}

std::string_view LadderResult::verdict() const {
  const int status = exit_status();
  return status == 0 ? "PASS" : status == 1 ? "FAIL" : "TROUBLE";
}

void drop_repeats(std::vector<Rung>& rungs, const Provider& subject) {
  std::vector<Rung> kept;
  for (const Rung& rung : rungs) {
    const auto same = std::ranges::find_if(kept, [&](const Rung& r) {
      return rung.kind == Rung::Kind::larger && r.parallel == rung.parallel &&
             !subject.tells_apart(r.work, rung.work);
    });
    if (same == kept.end()) kept.push_back(rung);
  }
  rungs = std::move(kept);
}

LadderResult walk(const LadderPlan& plan, Opponents opponents, const CheckOptions& options,
                  const std::function<void(const Rung&, const RungResult*)>& tell) {
  return Walk(plan, opponents, options, tell).run();
}

}  // namespace assay::align
