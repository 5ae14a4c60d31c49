#include "assay/compare/origin/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "assay/compare/causes/open_failures.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/origin/inputs.h"
#include "assay/compare/origin/isolation.h"
#include "assay/compare/origin/local_errors.h"
#include "assay/compare/origin/propagated_error.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

constexpr std::size_t none = OpenFailures::none;

// Within its rule, in the units of the reference.
bool is_scaled(const Finding& f) {
  return f.verdict == Verdict::exempt && f.exemption->kind == Exemption::Kind::scale_by_convention;
}

// Outside its rule for certain: what is computed from it may be outside, too.
bool is_off(const Finding& f) {
  if (is_scaled(f)) return false;
  return f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
         f.verdict == Verdict::inherited || f.verdict == Verdict::undecided || f.verdict == Verdict::exempt;
}

// Outside its rule for another reason than a mistake, as far as anybody knows.
bool is_without_blame(const Finding& f) {
  return f.verdict == Verdict::exempt || f.verdict == Verdict::undecided;
}

// Its rule could not judge it; an earlier failure explains that.
bool is_beyond_rules(const Finding& f) {
  return f.verdict == Verdict::mistrusted || f.verdict == Verdict::no_rule ||
         f.verdict == Verdict::not_comparable;
}

// Why nobody can say where a difference comes from: `root` was not judged by what it was made of.
struct Undecided {
  std::size_t root;
  double local_ratio;
  std::string reason;
};

// Where a difference comes from, or why it is none.
using Decision = std::variant<Origin, Exemption, Undecided>;

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
                       options.isolate ? options.cases : nullptr}),
        isolation_(options.isolate ? std::make_unique<Isolation>(findings, pairs, sides, steps, local_)
                                   : nullptr),
        inputs_(findings, pairs, local_.reference_calls(), isolation_ ? &isolation_->flow() : nullptr) {
    if (isolation_) isolation_->take_inputs(inputs_);
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      replicas_differ_.push_back(findings_[i].verdict == Verdict::replicas_differ);
  }

  void find() {
    if (isolation_) isolation_->judge_all();
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      find(i);
      const Finding& f = findings_[i];
      if (f.metrics && f.metrics->different_bits > 0) different_.add(i, f.id, is_result(f.id));
    }
  }

  RightValues take_right_values() { return isolation_ ? isolation_->take_right_values() : RightValues(); }
  // Of runs: plain files hold no results of anything.
  std::optional<Coverage> coverage() const {
    const auto ran = [](const Finding& f) { return f.id.phase != Phase::none && is_result(f.id); };
    if (!isolation_ || std::ranges::none_of(findings_, ran)) return {};
    return isolation_->coverage();
  }

 private:
  // A tensor that is unreadable itself has its reason already.
  void add_note(std::size_t i, std::string_view consequence, const std::string& trouble) {
    Finding& f = findings_[i];
    if (f.verdict != Verdict::unreadable) f.notes.push_back(fmt::format("{}: {}", consequence, trouble));
  }

  void find(std::size_t i) {
    Finding& f = findings_[i];
    if (isolation_ && isolation_->is_absent_by_choice(i) && options_.may_exempt)
      return exempt(i, {Exemption::Kind::legal_tie, 0, 0, "no token chose it"});
    const bool has_no_twin =
        pairs_[i].actual == nullptr || pairs_[i].reference == nullptr || f.verdict == Verdict::not_comparable;
    const auto part = isolation_ && has_no_twin ? isolation_->part_of_right(i) : std::nullopt;
    if (part && may_exempt(i)) return exempt(i, *part);
    // Tensors that only have a name ran in no order.
    if (f.id.phase == Phase::none || (!is_off(f) && !is_beyond_rules(f))) return;
    Decision decision = decide(i);
    if (auto* const exemption = std::get_if<Exemption>(&decision)) return exempt(i, std::move(*exemption));
    if (auto* const undecided = std::get_if<Undecided>(&decision))
      return leave_open(i, std::move(*undecided));
    Origin origin = std::get<Origin>(std::move(decision));
    if (is_beyond_rules(f) && origin.kind != Origin::Kind::inherited) {
      if (origin.local_ratio <= 1) f.origin = std::move(origin);  // rounding, which may not be exempt
      return;
    }
    if (origin.kind == Origin::Kind::inherited) {
      if (f.verdict != Verdict::not_comparable) f.verdict = Verdict::inherited;
      origin.root = root_of(findings_[from_]);
    }
    f.origin = std::move(origin);
    open_.add(i, f.id, is_result(f.id));
    wrong_.add(i, f.id, is_result(f.id));
    if (replicas_differ_[i]) open_replicas_.add(i, f.id, is_result(f.id));
  }

  void exempt(std::size_t i, Exemption exemption) {
    Finding& f = findings_[i];
    if (isolation_ && exemption.kind == Exemption::Kind::amplified_rounding && follows_tie(i))
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

  // Made of what other choices made.
  bool follows_tie(std::size_t i) const {
    return std::ranges::any_of(isolation_->made_of(i), [&](std::size_t k) {
      return findings_[k].exemption && findings_[k].exemption->kind == Exemption::Kind::legal_tie;
    });
  }

  // What made the difference that this one has.
  static const std::string& root_of(const Finding& f) {
    return f.origin && !f.origin->root.empty() ? f.origin->root : f.name;
  }

  Decision decide(std::size_t i) {
    const auto step = steps_.find(i);
    const bool is_wrong_step = step != steps_.end() && !step->second.is_right();
    const std::string* broken = isolation_ ? isolation_->broken(i) : nullptr;
    if (broken != nullptr && !is_wrong_step && !replicas_differ_[i])
      return Origin{Origin::Kind::created, nan_, *broken, ""};
    const std::vector<std::size_t> inputs = inputs_.of(i);
    const auto failing = std::ranges::find_if(inputs, [&](std::size_t k) { return is_off(findings_[k]); });
    from_ = failing != inputs.end()      ? *failing
            : is_result(findings_[i].id) ? open_.inside(findings_[i].id)
                                         : none;
    if (replicas_differ_[i] && !is_wrong_step) return replica_origin(i, inputs);
    if (step != steps_.end()) return step_decision(i, step->second);
    // Ranks that disagree are no fault of the operator or of a single input.
    const auto replicas_differ = [&](std::size_t k) { return replicas_differ_[k]; };
    if (std::ranges::none_of(inputs, replicas_differ) &&
        std::ranges::none_of(inputs_.of_call(i), replicas_differ)) {
      if (std::optional<Decision> judged = judge_call(i)) return *judged;
    }
    if (const auto part = isolation_ ? isolation_->part_of_right(i) : std::nullopt)
      return by_itself_right(i, *part);
    if (const auto right = isolation_ ? isolation_->right_by_flow(i) : std::nullopt) {
      if (from_ != none && isolation_->is_copy(i) && findings_[from_].verdict == Verdict::exempt &&
          may_exempt(i))
        return Exemption{findings_[from_].exemption->kind, 0, 0, "it is " + findings_[from_].name};
      return by_itself_right(i, *right);
    }
    if (from_ != none) {
      if (is_without_blame(findings_[from_]) && judges_flow()) {
        const std::size_t outside = from_;
        from_ = wrong_.before(findings_[i].id);
        if (from_ == none)
          return unjudged(i, fmt::format("{} is outside of its rule already", findings_[outside].name));
      }
      return Origin{
          Origin::Kind::inherited, nan_,
          fmt::format("{} {} already", findings_[from_].name,
                      findings_[from_].verdict == Verdict::exempt ? "is outside of its rule" : "fails"),
          ""};
    }
    // A choice may depend on the last bit of its inputs.
    const bool is_choice = isolation_ && !is_float(findings_[i].actual_dtype);
    const bool passed = std::ranges::all_of(inputs, [&](std::size_t k) {
      const Finding& f = findings_[k];
      return f.verdict == Verdict::passed && !(is_choice && f.metrics && f.metrics->different_bits > 0);
    });
    if (passed && inputs_.hold_data(i, inputs)) {
      if (std::optional<Decision> propagated = follow_inputs(i, inputs)) return *propagated;
      const bool are_equal = std::ranges::all_of(inputs, [&](std::size_t k) {
        return findings_[k].metrics && findings_[k].metrics->different_bits == 0;
      });
      if (judges_flow() && !are_equal)
        return unjudged(i, fmt::format("its inputs differ, too ({})", inputs_.names(inputs)));
      return Origin{Origin::Kind::created, nan_, fmt::format("its inputs passed ({})", inputs_.names(inputs)),
                    ""};
    }
    if (inputs_.is_initial(findings_[i].id))
      return Origin{Origin::Kind::unknown, nan_, "a parameter as it was before the run; nothing made it", ""};
    from_ = wrong_.before(findings_[i].id);
    if (from_ == none) from_ = open_.before(findings_[i].id);
    if (judges_flow() &&
        (from_ == none ? different_.before(findings_[i].id) != none : is_without_blame(findings_[from_])))
      return unjudged(i, from_ == none ? "tensors before it differ, too"
                                       : fmt::format("{}, before it, is outside of its rule already",
                                                     findings_[from_].name));
    if (from_ == none) return Origin{Origin::Kind::unknown, nan_, "nothing before it fails", ""};
    return Origin{
        Origin::Kind::inherited, nan_,
        fmt::format("runs after {}, which {}; what it was computed from was not recorded",
                    findings_[from_].name,
                    findings_[from_].verdict == Verdict::exempt ? "is outside of its rule" : "fails"),
        ""};
  }

  // Ranks that disagree made the difference, unless what they made it from differs between them, too.
  Origin replica_origin(std::size_t i, const std::vector<std::size_t>& direct) {
    const Identity& id = findings_[i].id;
    std::vector<std::size_t> inputs = direct;
    std::ranges::copy(inputs_.of_call(i), std::back_inserter(inputs));
    const auto differing = std::ranges::find_if(inputs, [&](std::size_t k) { return replicas_differ_[k]; });
    from_ = differing != inputs.end() ? *differing : none;
    if (from_ != none)
      return {Origin::Kind::inherited, nan_,
              fmt::format("replicas of {} differ already", findings_[from_].name), ""};
    if (inputs_.is_initial(id))
      return {Origin::Kind::unknown, nan_, "a parameter as it was before the run; nothing made it", ""};
    if (inputs_.hold_data(i, inputs))
      return {Origin::Kind::created, nan_,
              fmt::format("the replicas of its inputs agree ({})",
                          inputs_.names(direct.empty() ? inputs : direct)),
              ""};
    from_ = open_replicas_.inside(id);
    if (from_ == none) from_ = open_replicas_.before(id);
    if (from_ == none) return {Origin::Kind::created, nan_, "no replicas before it differ", ""};
    return {Origin::Kind::inherited, nan_,
            fmt::format("runs after {}, whose replicas differ; what it was computed from was not recorded",
                        findings_[from_].name),
            ""};
  }

  // A result of an optimizer, which was judged on its own inputs already: on one of them, where ranks hold
  // different ones.
  Decision step_decision(std::size_t i, const StepOrigin& step) {
    const std::vector<std::size_t> inputs = inputs_.of(i);
    const auto differing = std::ranges::find_if(inputs, [&](std::size_t k) { return replicas_differ_[k]; });
    // Each rank may clip by the norm of its own gradients.
    const std::size_t gradients = open_replicas_.before(findings_[i].id);
    const auto is_norm = [](const Diagnosis& d) { return d.cause == Cause::clip || d.cause == Cause::norm; };
    const bool clips_apart = gradients != none && findings_[gradients].id.step == findings_[i].id.step &&
                             std::ranges::any_of(findings_[i].diagnoses, is_norm);
    if (!step.is_right() && (differing != inputs.end() || clips_apart)) {
      from_ = differing != inputs.end() ? *differing : gradients;
      return Origin{Origin::Kind::inherited, step.ratio,
                    fmt::format("replicas of {} differ already", findings_[from_].name), ""};
    }
    if (step.root) {
      from_ = *step.root;
      return Origin{Origin::Kind::inherited, step.ratio, "the same mistake", ""};
    }
    const std::string how = fmt::format("{}: error/allowed {:.3g}", step.how, step.ratio);
    if (!step.is_right()) return Origin{Origin::Kind::created, step.ratio, how, ""};
    return by_itself_right(i, {Exemption::Kind::amplified_rounding, step.ratio, 1, how});
  }

  // Whether the error is no larger than that of the inputs. Parameters do not count: they say little about
  // the result that they change, and the change in a step is small beside the parameter.
  std::optional<Decision> follow_inputs(std::size_t i, const std::vector<std::size_t>& inputs) {
    const Finding& f = findings_[i];
    if (!is_result(f.id) || f.id.phase == Phase::optimizer || !is_float(f.actual_dtype)) return {};
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
    return by_itself_right(
        i,
        {Exemption::Kind::amplified_rounding, found->ratio, 1,
         fmt::format("relative L2 {:.2g}, where its inputs are off by {:.2g}", found->error, found->given)},
        false);
  }

  // It follows from a failure before it, or is exempt where there is none and everything before it was
  // judged.
  Decision by_itself_right(std::size_t i, Exemption exemption, bool is_whole = true) {
    if (is_whole && may_exempt(i)) return exemption;
    const auto unsettled = isolation_ ? isolation_->unsettled(i) : std::nullopt;
    if (unsettled && *unsettled != i && is_off(findings_[*unsettled])) from_ = *unsettled;
    if (!isolation_ && from_ == none) from_ = open_.before(findings_[i].id);
    // What nobody judged follows from the failures before it.
    if (unsettled && (from_ == none || is_without_blame(findings_[from_]))) {
      const std::size_t wrong = wrong_.before(findings_[*unsettled].id);
      if (wrong != none) from_ = wrong;
    }
    if (from_ != none && !is_without_blame(findings_[from_]))
      return Origin{Origin::Kind::inherited, exemption.measured, exemption.source, ""};
    if (unsettled)
      return Undecided{*unsettled, exemption.measured,
                       fmt::format("{}; but {}", exemption.source, not_judged(*unsettled))};
    if (isolation_ && !options_.may_exempt)
      return Undecided{i, exemption.measured,
                       exemption.source + "; what it was made of is settled by a comparison of all tensors"};
    return Origin{Origin::Kind::unknown, exemption.measured,
                  exemption.source + "; nothing before it fails: rounding was amplified here", ""};
  }

  // Whether what one tensor is made of can be known: else the rule of the whole run is all there is.
  bool judges_flow() const { return isolation_ && isolation_->judges_any(); }

  // Rounding may have been amplified in it, and nothing judged that.
  Decision unjudged(std::size_t i, const std::string& before) const {
    return Undecided{i, nan_, fmt::format("{}; {}", before, not_judged(i))};
  }

  std::string not_judged(std::size_t i) const {
    return fmt::format("{} was not judged by what it was made of: {}", findings_[i].name,
                       isolation_->why_unjudged(i));
  }

  bool may_exempt(std::size_t i) const {
    return options_.may_exempt && isolation_ && !isolation_->unsettled(i) && !findings_[i].asks_for_bits;
  }

  // Judges the call on the actual side's own inputs; nothing if it cannot be judged.
  std::optional<Decision> judge_call(std::size_t i) {
    Finding& f = findings_[i];
    if (!is_result(f.id) && !(isolation_ && isolation_->result(i) != nullptr)) return {};
    std::optional<LocalErrors::Judgement> own;
    if (!isolation_) own = local_.judge(f, pairs_[i]);
    const LocalErrors::Judgement* local = isolation_ ? isolation_->result(i) : own ? &*own : nullptr;
    if (local == nullptr) return {};
    if (!(local->ratio <= 1)) {
      f.diagnoses.insert(f.diagnoses.end(), local->diagnoses.begin(), local->diagnoses.end());
      return Origin{Origin::Kind::created, local->ratio, local->how, ""};
    }
    return by_itself_right(i, {local->exemption, local->ratio, 1, local->how}, local->is_whole);
  }

  static constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();
  std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const Sides& sides_;
  const StepOrigins& steps_;
  const OriginOptions options_;
  LocalErrors local_;
  std::unique_ptr<Isolation> isolation_;  // if results are isolated
  Inputs inputs_;
  std::vector<bool> replicas_differ_;          // ranks disagree
  OpenFailures open_, wrong_, open_replicas_;  // so far: outside of a rule, to blame for it, of replicas
  OpenFailures different_;                     // in any bit
  std::size_t from_ = none;                    // the failure that the present one follows from
};

}  // namespace

RightValues find_origins(Report& report, const std::vector<Pair>& pairs, const Sides& sides,
                         const StepOrigins& steps, const OriginOptions& options) {
  std::vector<Finding>& findings = report.findings;
  const bool has_open =
      std::ranges::any_of(findings, [](const Finding& f) { return is_off(f) || is_beyond_rules(f); });
  if (!options.isolate && !has_open) return {};
  Origins origins(findings, pairs, sides, steps, options);
  origins.find();
  report.coverage = origins.coverage();
  return origins.take_right_values();
}

}  // namespace assay
