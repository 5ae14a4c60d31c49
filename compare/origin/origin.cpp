#include "assay/compare/origin/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "assay/compare/calls/gradient_sums.h"
#include "assay/compare/calls/wires.h"
#include "assay/compare/causes/known_sizes.h"
#include "assay/compare/origin/local_errors.h"
#include "assay/compare/origin/open_failures.h"
#include "assay/compare/origin/propagated_error.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

constexpr std::size_t none = OpenFailures::none;

// Certainly wrong: other failures may follow from it.
bool is_certain_failure(const Finding& f) {
  return f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
         f.verdict == Verdict::inherited;
}

// Not passed because it could not be judged; an earlier failure explains that.
bool is_undecided(const Finding& f) {
  return f.verdict == Verdict::mistrusted || f.verdict == Verdict::no_rule ||
         f.verdict == Verdict::not_comparable;
}

bool is_result(const Identity& id) {
  return id.slot == "output" || id.slot == "grad_input" || id.slot == "grad";
}

class Origins {
 public:
  Origins(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
          const StepOrigins& steps, const LocalErrors::Options& options)
      : findings_(findings), pairs_(pairs), sides_(sides), steps_(steps), local_(sides, options) {
    if (options.isolate) wires_.emplace(sides);
    const auto reference = [&](std::size_t i) { return pairs_[i].reference; };
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      replicas_differ_.push_back(findings_[i].verdict == Verdict::replicas_differ);
      if (reference(i) != nullptr) by_tensor_.emplace(reference(i), i);
      by_id_.emplace(pairs_[i].id(), i);
      first_step_ = std::min(first_step_, pairs_[i].id().step);
    }
  }

  void find() {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (wires_ && pairs_[i].actual != nullptr && findings_[i].verdict != Verdict::ignored)
        judge_isolated(i);
      find(i);
    }
  }

  // "isolated: 812 of 1,245 results; 433 have no recorded call".
  std::string coverage() const {
    const LocalErrors::Unjudged& u = local_.unjudged();
    const std::int64_t unjudged = u.no_call + u.no_fit + u.no_budget + u.unreadable;
    std::string text = fmt::format("isolated: {} of {} results judged on their own recorded inputs",
                                   grouped(results_ - unjudged), grouped(results_));
    for (const auto& [count, why] : {std::pair(u.no_call, "have no recorded call with all of its inputs"),
                                     {u.no_fit, "are of calls whose attributes the reference does not show"},
                                     {u.unreadable, "are of calls with a tensor that cannot be read"},
                                     {u.no_budget, "were left out, as enough was replayed before them"}}) {
      if (count > 0) text += fmt::format("; {} {}", grouped(count), why);
    }
    text += fmt::format("; {} of {} inputs are known to be what was given before them",
                        grouped(wires_->known()), grouped(wires_->inputs()));
    if (const auto& troubles = wires_->troubles(); !troubles.empty())
      text += fmt::format("; {} of the reference cannot be read ({}{})", grouped(std::ssize(troubles)),
                          troubles.front(), troubles.size() > 1 ? ", .." : "");
    return text;
  }

 private:
  // Judges a result on the actual side's own inputs, whatever the end-to-end comparison says.
  void judge_isolated(std::size_t i) {
    Finding& f = findings_[i];
    if (pairs_[i].reference != nullptr) follow_wires(i);
    if (!is_result(f.id)) return;
    ++results_;
    isolated_[i] = local_.judge(f, pairs_[i]);
    const auto& local = isolated_[i];
    if (!local || local->ratio <= 1) return;
    fail(f, fmt::format("the operator is wrong on its own recorded inputs{}",
                        local->diagnoses.empty() ? "" : ": " + sentence(local->diagnoses.front())));
  }

  // A tensor that is unreadable itself has its reason already.
  void add_note(std::size_t i, std::string_view consequence, const std::string& trouble) {
    Finding& f = findings_[i];
    if (f.verdict != Verdict::unreadable) f.notes.push_back(fmt::format("{}: {}", consequence, trouble));
  }

  static void fail(Finding& f, const std::string& why) {
    if (f.verdict == Verdict::passed)
      f.reason = fmt::format("the end-to-end tolerance passes, but {}", why);
    else if (!is_certain_failure(f))
      f.reason = fmt::format("{}; end to end it is {}{}", why, name(f.verdict),
                             f.reason.empty() ? "" : ": " + f.reason);
    if (f.verdict != Verdict::replicas_differ) f.verdict = Verdict::failed;
  }

  // Checks that the value is the result that it comes from, or the sum of its terms.
  void follow_wires(std::size_t i) {
    const LogicalTensor &reference = *pairs_[i].reference, &actual = *pairs_[i].actual;
    std::optional<std::string> broken;
    const auto trouble = trouble_in([&] {
      broken = wires_->broken(reference, actual);
      if (!broken) broken = broken_sum(sides_, *wires_, reference, actual);
    });
    if (trouble) return add_note(i, "not compared with the result that it comes from", *trouble);
    if (!broken) return;
    fail(findings_[i], *broken);
    broken_wires_[i] = *broken;
  }

  void find(std::size_t i) {
    Finding& f = findings_[i];
    // Tensors that only have a name ran in no order.
    if (f.id.phase == Phase::none || (!is_certain_failure(f) && !is_undecided(f))) return;
    Origin origin = origin_of(i);
    if (is_undecided(f) && origin.kind != Origin::Kind::inherited) {
      if (origin.local_ratio <= 1) f.origin = std::move(origin);
      return;
    }
    if (origin.kind == Origin::Kind::inherited) {
      if (f.verdict != Verdict::not_comparable) f.verdict = Verdict::inherited;
      const Finding& from = findings_[from_];
      origin.root = from.origin && !from.origin->root.empty() ? from.origin->root : from.name;
    }
    f.origin = std::move(origin);
    open_.add(i, f.id, is_result(f.id));
  }

  Origin origin_of(std::size_t i) {
    if (const auto broken = broken_wires_.find(i); broken != broken_wires_.end())
      return {Origin::Kind::created, nan_, broken->second, ""};
    const std::vector<std::size_t> inputs = inputs_of(i);
    const auto failing =
        std::ranges::find_if(inputs, [&](std::size_t k) { return is_certain_failure(findings_[k]); });
    from_ = failing != inputs.end()      ? *failing
            : is_result(findings_[i].id) ? open_.inside(findings_[i].id)
                                         : none;
    if (std::optional<Origin> step = step_origin(i)) return *step;
    // Ranks that disagree are no fault of the operator or of a single input.
    const auto replicas_differ = [&](std::size_t k) { return replicas_differ_[k]; };
    if (!replicas_differ_[i] && std::ranges::none_of(inputs, replicas_differ) &&
        std::ranges::none_of(inputs_of_call(i), replicas_differ)) {
      if (std::optional<Origin> judged = judge_call(i)) return *judged;
    }
    if (from_ != none) {
      return {Origin::Kind::inherited, nan_, fmt::format("{} fails already", findings_[from_].name), ""};
    }
    // A choice may depend on the last bit of its inputs.
    const bool is_choice = wires_ && !is_float(findings_[i].actual_dtype);
    const bool passed = std::ranges::all_of(inputs, [&](std::size_t k) {
      const Finding& f = findings_[k];
      return f.verdict == Verdict::passed && !(is_choice && f.metrics && f.metrics->different_bits > 0);
    });
    if (passed && knows_data(i, inputs)) {
      if (std::optional<Origin> propagated = follow_inputs(i, inputs)) return *propagated;
      return {Origin::Kind::created, nan_, fmt::format("its inputs passed ({})", name_some(inputs)), ""};
    }
    if (is_initial(findings_[i].id))
      return {Origin::Kind::unknown, nan_, "a parameter as it was before the run; nothing made it", ""};
    from_ = open_.before(findings_[i].id);
    if (from_ == none) return {Origin::Kind::unknown, nan_, "nothing before it fails", ""};
    return {Origin::Kind::inherited, nan_,
            fmt::format("runs after {}, which fails; what it was computed from was not recorded",
                        findings_[from_].name),
            ""};
  }

  // Loaded, not computed: a parameter of the first step that was recorded.
  bool is_initial(const Identity& id) const {
    return id.slot == "param" && id.phase == Phase::forward && id.step == first_step_;
  }

  // A result needs more than parameters, and a gradient needs the gradient that was handed back.
  bool knows_data(std::size_t i, const std::vector<std::size_t>& inputs) const {
    const Identity& id = findings_[i].id;
    if (!is_result(id) || id.phase == Phase::optimizer) return !inputs.empty();
    return std::ranges::any_of(inputs, [&](std::size_t k) {
      const std::string& slot = findings_[k].id.slot;
      return id.slot == "output" ? slot == "input" : slot == "grad_output" || slot == "grad";
    });
  }

  std::string name_some(const std::vector<std::size_t>& inputs) const {
    constexpr std::size_t most = 3;
    std::string names;
    for (std::size_t i = 0; i < std::min(inputs.size(), most); ++i) {
      const Identity& id = findings_[inputs[i]].id;
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ", id.slot, id.arg);
    }
    return names + (inputs.size() > most ? fmt::format(" and {} more", inputs.size() - most) : "");
  }

  void add(std::vector<std::size_t>& inputs, const Identity& id) const {
    if (const auto found = by_id_.find(id); found != by_id_.end()) inputs.push_back(found->second);
  }

  // The findings of the recorded inputs of this tensor.
  std::vector<std::size_t> inputs_of(std::size_t i) const {
    std::vector<std::size_t> inputs;
    const Identity& id = findings_[i].id;
    if (pairs_[i].reference == nullptr) return inputs;
    if (id.phase == Phase::optimizer) {
      const std::string param = id.arg.substr(0, id.arg.find('.'));
      add(inputs, {id.step, -1, Phase::backward, id.module, "grad", param, 0});
      if (inputs.empty()) return inputs;  // no part of a parameter's step
      add(inputs, {id.step, -1, Phase::forward, id.module, "param", param, 0});
      add(inputs, {id.step, -1, Phase::backward, "step", "loss", "grad_norm", 0});
      for (const char* norm : {"norm", "clip_coeff"})
        add(inputs, {id.step, -1, Phase::optimizer, "grad_norm", "state", norm, 0});
      // A narrow parameter is a copy of its master.
      if (id.slot == "param")
        add(inputs, {id.step, -1, Phase::optimizer, id.module, "state", id.arg + ".master", 0});
      std::erase(inputs, i);
      return inputs;
    }
    if (id.slot == "grad" && id.arg.find(".unreduced") == std::string::npos) {
      Identity unreduced = id;
      unreduced.arg += ".unreduced";
      add(inputs, unreduced);
      if (!inputs.empty()) return inputs;
    }
    if (const LogicalTensor* source = wires_ ? wires_->source_of(*pairs_[i].reference) : nullptr) {
      if (const auto found = by_tensor_.find(source); found != by_tensor_.end())
        inputs.push_back(found->second);
      return inputs;
    }
    if (id.slot == "param" && id.phase == Phase::forward && id.step > 0) {
      add(inputs, {id.step - 1, -1, Phase::optimizer, id.module, "param", id.arg, 0});
      return inputs;
    }
    return inputs_of_call(i);
  }

  // The findings of the inputs of its call.
  std::vector<std::size_t> inputs_of_call(std::size_t i) const {
    std::vector<std::size_t> inputs;
    const Identity& id = findings_[i].id;
    if (pairs_[i].reference == nullptr || !is_result(id) || id.phase == Phase::optimizer) return inputs;
    const bool is_backward = id.slot != "output";
    for (const LogicalTensor* t : local_.reference_calls().around(*pairs_[i].reference)) {
      const std::string& slot = t->id.slot;
      const bool counts = slot == "input" || slot == "param" || (is_backward && slot == "grad_output");
      if (!counts) continue;
      if (const auto found = by_tensor_.find(t); found != by_tensor_.end()) inputs.push_back(found->second);
    }
    return inputs;
  }

  // A result of an optimizer, which was judged on its own inputs already.
  std::optional<Origin> step_origin(std::size_t i) {
    const auto at = steps_.find(i);
    if (at == steps_.end()) return {};
    const StepOrigin& step = at->second;
    if (step.root) {
      from_ = *step.root;
      return Origin{Origin::Kind::inherited, step.ratio, "the same mistake", ""};
    }
    const std::string how = fmt::format("{}: error/allowed {:.3g}", step.how, step.ratio);
    if (!(step.ratio <= 1)) return Origin{Origin::Kind::created, step.ratio, how, ""};
    return rounding_origin(i, step.ratio, how);
  }

  // Whether the error is no larger than that of the inputs. Parameters do not count: they say little about
  // the result that they change, and the change in a step is small beside the parameter.
  std::optional<Origin> follow_inputs(std::size_t i, const std::vector<std::size_t>& inputs) {
    const Finding& f = findings_[i];
    if (replicas_differ_[i] || !is_result(f.id) || f.id.phase == Phase::optimizer ||
        !is_float(f.actual_dtype))
      return {};
    std::vector<Pair> given;
    for (const std::size_t k : inputs) {
      if (findings_[k].id.slot != "param" && findings_[k].metrics && is_float(findings_[k].actual_dtype))
        given.push_back(pairs_[k]);
    }
    std::optional<PropagatedError> found;
    const auto trouble = trouble_in([&] { found = propagated_error(sides_, pairs_[i], given); });
    if (trouble) {
      add_note(i, "not compared with the errors of its inputs", *trouble);
      return {};  // g++ 12 may have written to `found` before the exception
    }
    if (!found) return {};
    return rounding_origin(
        i, found->ratio,
        fmt::format("relative L2 {:.2g}, where its inputs are off by {:.2g}", found->error, found->given));
  }

  // Right by itself.
  Origin rounding_origin(std::size_t i, double ratio, const std::string& how) {
    if (from_ == none) from_ = open_.before(findings_[i].id);
    if (from_ != none) return {Origin::Kind::inherited, ratio, how, ""};
    return {Origin::Kind::unknown, ratio, how + ", and nothing before it fails: rounding grew here", ""};
  }

  // Judges the call on the actual side's own inputs; nothing if it cannot be judged.
  std::optional<Origin> judge_call(std::size_t i) {
    Finding& f = findings_[i];
    if (!is_result(f.id)) return {};
    const auto known = isolated_.find(i);
    const auto local = known != isolated_.end() ? known->second : local_.judge(f, pairs_[i]);
    if (!local) return {};
    if (!(local->ratio <= 1)) {
      f.diagnoses.insert(f.diagnoses.end(), local->diagnoses.begin(), local->diagnoses.end());
      return Origin{Origin::Kind::created, local->ratio, local->how, ""};
    }
    return rounding_origin(i, local->ratio, local->how);
  }

  static constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const Sides& sides_;
  std::optional<Wires> wires_;  ///< if results are isolated
  const StepOrigins& steps_;
  LocalErrors local_;
  std::map<std::size_t, std::optional<LocalErrors::Judgement>>
      isolated_;                                     ///< results that were judged by themselves
  std::int64_t results_ = 0;                         ///< that were to be
  std::map<std::size_t, std::string> broken_wires_;  ///< tensors that are not the result that they come from
  std::map<const LogicalTensor*, std::size_t> by_tensor_;
  std::map<Identity, std::size_t> by_id_;
  std::int64_t first_step_ = std::numeric_limits<std::int64_t>::max();
  std::vector<bool> replicas_differ_;  // ranks disagree
  OpenFailures open_;                  // so far
  std::size_t from_ = none;            // the failure that the present one follows from
};

}  // namespace

void find_origins(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                  const StepOrigins& steps) {
  if (std::ranges::none_of(findings,
                           [](const Finding& f) { return is_certain_failure(f) || is_undecided(f); }))
    return;
  Origins(findings, pairs, sides, steps, {}).find();
}

void isolate(Report& report, const std::vector<Pair>& pairs, const Sides& sides, const StepOrigins& steps) {
  Origins origins(report.findings, pairs, sides, steps, {.isolate = true, .sizes = known_sizes(sides)});
  origins.find();
  report.notes.push_back(origins.coverage());
}

}  // namespace assay
