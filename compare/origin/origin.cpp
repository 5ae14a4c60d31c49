#include "assay/compare/origin/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "assay/compare/causes/nonfinite.h"
#include "assay/compare/causes/open_failures.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/origin/decision.h"
#include "assay/compare/origin/differing_inputs.h"
#include "assay/compare/origin/differing_replicas.h"
#include "assay/compare/origin/inputs.h"
#include "assay/compare/origin/isolation.h"
#include "assay/compare/origin/local_errors.h"
#include "assay/compare/origin/missing_gradients.h"
#include "assay/compare/origin/missing_layers.h"
#include "assay/compare/origin/propagated_error.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

constexpr std::size_t none = OpenFailures::none;

class Origins {
 public:
  Origins(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
          const StepOrigins& steps, const OriginOptions& options)
      : findings_(findings),
        pairs_(pairs),
        sides_(sides),
        steps_(steps),
        options_(options),
        local_(sides, {options.isolate, options.isolate ? known_sizes(sides) : std::vector<KnownSize>(),
                       options.isolate ? options.cases : nullptr, options.threads}),
        isolation_(options.isolate ? std::make_unique<Isolation>(findings, pairs, sides, steps, local_)
                                   : nullptr),
        inputs_(findings, pairs, local_.reference_calls(), isolation_ ? &isolation_->flow() : nullptr),
        replicas_(findings, inputs_) {
    if (isolation_) isolation_->take_inputs(inputs_);
  }

  void find() {
    if (isolation_) isolation_->judge_all(options_.progress);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      find(i);
      const Finding& f = findings_[i];
      if (f.metrics && f.metrics->different_bits > 0) different_.add(i, f.id, is_result(f.id));
    }
  }

  RightValues take_right_values() { return isolation_ ? isolation_->take_right_values() : RightValues(); }
  std::optional<Coverage> coverage() const { return isolation_ ? isolation_->coverage() : std::nullopt; }

 private:
  void find(std::size_t i) {
    Finding& f = findings_[i];
    if (is_missing_gradient(f)) return blame(i);
    if (isolation_ && isolation_->is_absent_by_choice(i) && options_.may_exempt)
      return exempt(i, {Exemption::Kind::legal_tie, 0, 0, "no token chose it"});
    const bool has_no_twin =
        pairs_[i].actual == nullptr || pairs_[i].reference == nullptr || f.verdict == Verdict::not_comparable;
    const auto part = isolation_ && has_no_twin ? isolation_->part_of_right(i) : std::nullopt;
    // Without a twin it is its whole that is compared, whatever that was given.
    if (part && options_.may_exempt && !f.asks_for_bits) return exempt(i, *part);
    if (is_missing_layer(f)) return blame(i);
    // Tensors that only have a name ran in no order.
    if (f.id.phase == Phase::none || (!is_off(f) && !is_beyond_rules(f))) return;
    Decision decision = decide(i);
    if (auto* const exemption = std::get_if<Exemption>(&decision)) return exempt(i, std::move(*exemption));
    if (auto* const undecided = std::get_if<Undecided>(&decision))
      return leave_open(i, std::move(*undecided));
    if (auto* const inherited = std::get_if<Inherited>(&decision)) {
      const Finding& from = findings_[inherited->from];
      f.origin = Origin{Origin::Kind::inherited, inherited->local_ratio, std::move(inherited->reason),
                        from.origin && !from.origin->root.empty() ? from.origin->root : from.name};
      if (f.verdict != Verdict::not_comparable) f.verdict = Verdict::inherited;
    } else {
      const Origin& origin = std::get<Origin>(decision);
      // Beyond rules only rounding, which may not be exempt, says something.
      if (!is_beyond_rules(f) || origin.local_ratio <= 1) f.origin = origin;
      if (is_beyond_rules(f)) return;
    }
    blame(i);
    replicas_.add(i);
  }

  void blame(std::size_t i) {
    const Identity& id = findings_[i].id;
    open_.add(i, id, is_result(id));
    wrong_.add(i, id, is_result(id));
  }

  void exempt(std::size_t i, Exemption exemption) {
    Finding& f = findings_[i];
    if (isolation_ && exemption.kind == Exemption::Kind::amplified_rounding && isolation_->follows_tie(i))
      exemption.kind = Exemption::Kind::legal_tie;
    // Of tensors of other shapes only those that other choices explain.
    if (f.verdict == Verdict::not_comparable && exemption.kind != Exemption::Kind::legal_tie &&
        exemption.kind != Exemption::Kind::part_of_whole)
      return;
    f.verdict = Verdict::exempt;
    f.exemption = std::move(exemption);
    open_.add(i, f.id, is_result(f.id));
  }

  void leave_open(std::size_t i, Undecided undecided) {
    Finding& f = findings_[i];
    f.origin = Origin{Origin::Kind::unknown, undecided.local_ratio, std::move(undecided.reason),
                      undecided.root == i ? "" : findings_[undecided.root].name};
    if (f.asks_for_bits || f.verdict == Verdict::not_comparable) return;
    f.verdict = Verdict::undecided;
    open_.add(i, f.id, is_result(f.id));
  }

  Decision decide(std::size_t i) {
    const auto step = steps_.find(i);
    const bool is_wrong_step = step != steps_.end() && !step->second.is_right();
    const std::string* broken = isolation_ ? isolation_->broken(i) : nullptr;
    const std::vector<std::size_t> inputs = inputs_.of(i);
    if (const auto source = nonfinite_source(findings_, i, inputs))
      return Inherited{*source, fmt::format("{} is NaN or Inf already", findings_[*source].name)};
    // A right whole may place rows otherwise: by a choice that the other side did not make.
    const auto part = isolation_ ? isolation_->part_of_right(i) : std::nullopt;
    if (broken != nullptr && !is_wrong_step && !part && !replicas_.contains(i)) return created_here(*broken);
    const auto failing = std::ranges::find_if(inputs, [&](std::size_t k) { return is_off(findings_[k]); });
    const std::size_t from = failing != inputs.end()      ? *failing
                             : is_result(findings_[i].id) ? open_.inside(findings_[i].id)
                                                          : none;
    if (replicas_.contains(i) && !is_wrong_step) return replicas_.origin_of(i, inputs);
    if (step != steps_.end()) return of_step(i, step->second, inputs, from);
    const bool is_settled =
        part && options_.may_exempt && isolation_->is_part_of_passed(i) && !findings_[i].asks_for_bits;
    // Ranks that disagree are no fault of the operator or of a single input.
    if (replicas_.first_of(inputs) == none && replicas_.first_of(inputs_.of_call(i)) == none) {
      if (std::optional<Decision> judged = judge_call(i, from))
        return is_settled && std::holds_alternative<Undecided>(*judged) ? *part : *judged;
    }
    if (part) return is_settled ? *part : by_itself_right(i, *part, from);
    if (const auto right = isolation_ ? isolation_->right_by_flow(i) : std::nullopt) {
      if (from != none && isolation_->is_copy(i) && findings_[from].verdict == Verdict::exempt &&
          may_exempt(i))
        return Exemption{findings_[from].exemption->kind, 0, 0, "it is " + findings_[from].name};
      return by_itself_right(i, *right, from);
    }
    return from != none ? after_input(i, from) : after_passed(i, inputs);
  }

  // One of its inputs, or a result inside of it, is outside of its rule.
  Decision after_input(std::size_t i, std::size_t from) const {
    const std::size_t to_blame =
        is_without_blame(findings_[from]) && judges_flow() ? wrong_.before(findings_[i].id) : from;
    if (to_blame == none)
      return unjudged(i, fmt::format("{} is outside of its rule already", findings_[from].name));
    const Finding& f = findings_[to_blame];
    return Inherited{to_blame, fmt::format("{} {} already", f.name, what_it_does(f))};
  }

  // None of its inputs is outside of its rule, as far as they were recorded.
  Decision after_passed(std::size_t i, const std::vector<std::size_t>& inputs) {
    // A choice may depend on the last bit of its inputs.
    const bool is_choice = isolation_ && !is_float(findings_[i].actual_dtype);
    const bool passed = std::ranges::all_of(inputs, [&](std::size_t k) {
      const Finding& f = findings_[k];
      return f.verdict == Verdict::passed && !(is_choice && f.metrics && f.metrics->different_bits > 0);
    });
    if (passed && inputs_.hold_data(i, inputs)) {
      if (auto rounding = rounding_of_inputs(sides_, findings_, pairs_, i, inputs))
        return by_itself_right(i, std::move(*rounding), none, false);
      if (findings_[i].is_choice)
        return unjudged(i, "other rows were chosen, and what decides that was not recorded");
      const bool are_equal =
          std::ranges::all_of(inputs, [&](std::size_t k) { return findings_[k].has_equal_bits(); });
      if (judges_flow() && !are_equal)
        return unjudged(i, fmt::format("its inputs differ, too ({})", inputs_.names(inputs)));
      // What is outside of its rule may follow from roundings inside of it.
      const std::size_t inside = is_result(findings_[i].id) ? different_.inside(findings_[i].id) : none;
      if (judges_flow() && inside != none)
        return unjudged(i, fmt::format("{}, inside of it, differs, too", findings_[inside].name));
      return created_here(fmt::format("its inputs passed ({})", inputs_.names(inputs)));
    }
    const Identity& id = findings_[i].id;
    if (inputs_.is_initial(id)) return made_anywhere("a parameter as it was before the run; nothing made it");
    std::size_t from = wrong_.before(id);
    if (from == none) from = open_.before(id);
    if (from == none && judges_flow() && different_.before(id) != none)
      return unjudged(i, "tensors before it differ, too");
    if (from == none) return made_anywhere("nothing before it fails");
    const Finding& f = findings_[from];
    if (judges_flow() && is_without_blame(f))
      return unjudged(i, fmt::format("{}, before it, is outside of its rule already", f.name));
    return Inherited{from, fmt::format("runs after {}, which {}; what it was computed from was not recorded",
                                       f.name, what_it_does(f))};
  }

  // A result of an optimizer, which was judged on its own inputs already: on one of them, where ranks hold
  // different ones.
  Decision of_step(std::size_t i, const StepOrigin& step, const std::vector<std::size_t>& inputs,
                   std::size_t from) {
    const std::size_t differing = step.is_right() ? none : replicas_.behind_step(i, inputs);
    if (differing != none)
      return Inherited{differing, fmt::format("replicas of {} differ already", findings_[differing].name),
                       step.ratio};
    if (step.root) return Inherited{*step.root, "the same mistake", step.ratio};
    const std::string how = fmt::format("{}: error/allowed {:.3g}", step.how, step.ratio);
    if (!step.is_right()) return created_here(how, step.ratio);
    return by_itself_right(i, {Exemption::Kind::amplified_rounding, step.ratio, 1, how}, from);
  }

  // It follows from a failure before it, or is exempt where there is none and everything before it was
  // judged.
  // @param from  none: no input is known to be off
  Decision by_itself_right(std::size_t i, Exemption exemption, std::size_t from, bool is_whole = true) {
    if (is_whole && may_exempt(i)) return exemption;
    const auto unsettled = isolation_ ? isolation_->unsettled(i) : std::nullopt;
    if (unsettled && *unsettled != i && is_off(findings_[*unsettled])) from = *unsettled;
    if (!isolation_ && from == none) from = open_.before(findings_[i].id);
    // What nobody judged follows from the failures before it.
    if (unsettled && (from == none || is_without_blame(findings_[from]))) {
      const std::size_t wrong = wrong_.before(findings_[*unsettled].id);
      if (wrong != none) from = wrong;
    }
    if (from != none && !is_without_blame(findings_[from]))
      return Inherited{from, exemption.source, exemption.measured};
    if (unsettled && is_whole && options_.may_exempt) {
      if (auto by = explained_by_inputs(findings_, pairs_, i, inputs_, local_, exemption)) return *by;
    }
    if (unsettled)
      return Undecided{*unsettled, fmt::format("{}; but {}", exemption.source, not_judged(*unsettled)),
                       exemption.measured};
    if (isolation_ && !options_.may_exempt)
      return Undecided{i,
                       exemption.source + "; what it was made of is settled by a comparison of all tensors",
                       exemption.measured};
    return made_anywhere(exemption.source + "; nothing before it fails: rounding was amplified here",
                         exemption.measured);
  }

  // Whether what one tensor is made of can be known: else the rule of the whole run is all there is.
  bool judges_flow() const { return isolation_ && isolation_->judges_any(); }

  // Rounding may have been amplified in it, and nothing judged that.
  Decision unjudged(std::size_t i, const std::string& before) const {
    return Undecided{i, fmt::format("{}; {}", before, not_judged(i))};
  }

  std::string not_judged(std::size_t i) const {
    return fmt::format("{} was not judged by what it was made of: {}", findings_[i].name,
                       isolation_->why_unjudged(i));
  }

  bool may_exempt(std::size_t i) const {
    return options_.may_exempt && isolation_ && !isolation_->unsettled(i) && !findings_[i].asks_for_bits;
  }

  // Judges the call on the actual side's own inputs; nothing if it cannot be judged.
  std::optional<Decision> judge_call(std::size_t i, std::size_t from) {
    Finding& f = findings_[i];
    const auto local = isolation_        ? isolation_->result(i)
                       : is_result(f.id) ? local_.judge(f, pairs_[i])
                                         : std::nullopt;
    if (!local) return {};
    if (!(local->ratio <= 1)) {
      f.diagnoses.insert(f.diagnoses.end(), local->diagnoses.begin(), local->diagnoses.end());
      return created_here(local->how, local->ratio);
    }
    // Rounding makes them differ only where both are right.
    if (const auto wrong = is_off(f) && isolation_ ? local_.wrong_reference(f, pairs_[i]) : std::nullopt)
      return created_here(fmt::format("it is the reference that is wrong: {}", wrong->how), wrong->ratio);
    return by_itself_right(i, {local->exemption, local->ratio, 1, local->how}, from, local->is_whole);
  }

  std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const Sides& sides_;
  const StepOrigins& steps_;
  const OriginOptions options_;
  LocalErrors local_;
  std::unique_ptr<Isolation> isolation_;  // if results are isolated
  Inputs inputs_;
  DifferingReplicas replicas_;
  OpenFailures open_, wrong_, different_;  // so far: outside of a rule, to blame for it, in any bit
};

}  // namespace

RightValues find_origins(Report& report, const std::vector<Pair>& pairs, const Sides& sides,
                         const StepOrigins& steps, const OriginOptions& options) {
  std::vector<Finding>& findings = report.findings;
  const bool has_open =
      std::ranges::any_of(findings, [](const Finding& f) { return is_off(f) || is_beyond_rules(f); });
  if (!options.isolate && !has_open) return {};
  fail_missing_layers(findings);
  fail_missing_gradients(findings, pairs);
  Origins origins(findings, pairs, sides, steps, options);
  origins.find();
  report.coverage = origins.coverage();
  return origins.take_right_values();
}

}  // namespace assay
