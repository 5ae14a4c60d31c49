#include "assay/compare/pair_judge.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "assay/compare/measure/measure.h"
#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/meeting.h"
#include "assay/compare/pairs/near_tie.h"
#include "assay/compare/pairs/recorded_side.h"
#include "assay/compare/pairs/replicas.h"
#include "assay/compare/pairs/sketched_pair.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/layout/layout_rules.h"

namespace assay {
namespace {

std::string why_missing(const std::map<Identity, std::string>& unplaced, const Identity& id,
                        const Dump& other) {
  const auto found = unplaced.find(id);
  return found != unplaced.end() ? found->second : "only in " + other.path.string();
}

}  // namespace

PairJudge::PairJudge(const Sides& sides, const std::vector<Pair>& pairs, const DiffOptions& options)
    : actual_(sides.actual),
      reference_(sides.reference),
      sides_(sides),
      options_(options),
      reference_by_id_(sides.reference_tensors),
      count_of_(sides.reference_tensors),
      row_dtype_(pairs),
      unplaced_in_actual_(why_unplaced(sides.actual)),
      unplaced_in_reference_(why_unplaced(sides.reference)) {}

void PairJudge::see(const Pair& pair) {
  if (!options_.rules.ignored(paths_of(pair.id()))) row_dtype_.see(pair);
}

void PairJudge::judge(Finding& f, const Pair& pair, const std::optional<ScaleConvention>& convention) {
  const std::vector<std::string> paths = paths_of(f.id);
  const auto leave_out = [&](Verdict verdict, std::string why) {
    f.verdict = verdict;
    f.reason = std::move(why);
  };
  if (const auto reason = options_.rules.ignored(paths)) {
    leave_out(Verdict::ignored, *reason);
  } else if (is_nothing(actual_, reference_, pair)) {
    f.verdict = Verdict::exempt;
    f.exemption = {Exemption::Kind::nothing, 0, 0,
                   "it is zeros, or has no elements, and the other side lacks it"};
  } else if (pair.actual == nullptr) {
    leave_out(Verdict::missing_actual, why_missing(unplaced_in_actual_, f.id, reference_));
  } else if (pair.reference == nullptr) {
    leave_out(Verdict::missing_reference, why_missing(unplaced_in_reference_, f.id, actual_));
  } else if (auto trouble = trouble_in([&] { compare_pair(f, pair, paths, convention); })) {
    leave_out(Verdict::unreadable, std::move(*trouble));  // the others go on
    options_.log.debug("{} is not compared: {}", f.name, f.reason);
  }
  options_.log.trace("{}: {}, {:.3g} of what is allowed by {}", f.name, name(f.verdict), f.ratio,
                     f.rule.empty() ? "no rule" : f.rule);
}

void PairJudge::compare_pair(Finding& f, const Pair& pair, const std::vector<std::string>& paths,
                             const std::optional<ScaleConvention>& convention) {
  f.actual_dtype = pair.actual->dtype;
  f.reference_dtype = pair.reference->dtype;
  f.actual_shape = common_shape(pair.actual->shape, pair.reference->shape);
  f.reference_shape = pair.reference->shape;
  const bool has_values =
      without_bits(actual_, *pair.actual) == nullptr && without_bits(reference_, *pair.reference) == nullptr;
  const Expectation e = expectation(f, pair, paths);
  if (has_values) {
    compare_values(f, pair, e, convention);
  } else if (is_compared_by_sketch(sides_, pair)) {
    compare_sketches(f, pair, e, convention);
  } else {
    compare_recorded(f, pair, e);
  }
  check_not_shrunk(actual_, *pair.actual);
  check_not_shrunk(reference_, *pair.reference);
}

Expectation PairJudge::expectation(Finding& f, const Pair& pair,
                                   const std::vector<std::string>& paths) const {
  const Policy* by_rule = options_.rules.policy_of(paths);
  Expectation e;
  e.policy = by_rule != nullptr ? by_rule : &options_.policies.front();
  f.asks_for_bits = e.policy->rule == Rule::bitwise;
  e.threads = options_.threads;
  e.exact_sums = options_.exact_sums;
  if (const auto count = options_.rules.count_of(paths)) {
    e.count = count->count;
    f.count_source = count->source;
  } else if (const auto known = count_of_(*pair.reference)) {
    e.count = known->count;
    f.count_source = known->source;
  }
  const bool deviates = row_dtype_.deviates(pair);
  row_dtype_.apply(e, deviates ? f.reference_dtype : coarser(f.actual_dtype, f.reference_dtype));
  if (deviates) f.notes.push_back(deviation_text(pair));
  return e;
}

// What the other policies say, by the same judge.
void PairJudge::add_opinions(Finding& f, Expectation e,
                             const std::function<void(Finding&, const Expectation&)>& judge) const {
  e.map_errors = false;
  for (std::size_t i = 1; i < options_.policies.size(); ++i) {
    Finding other;
    e.policy = &options_.policies[i];
    judge(other, e);
    f.others.push_back({e.policy->name, other.verdict, other.ratio});
  }
}

void PairJudge::compare_values(Finding& f, const Pair& pair, Expectation e,
                               const std::optional<ScaleConvention>& convention) {
  const Merged actual = as_compared(actual_, pair, convention),
               reference = merge(reference_, *pair.reference);
  e.map_errors = error_maps_ < options_.error_maps;
  assay::judge(f, actual.tensor, reference.tensor, e);
  judge_replicas(f, actual, &reference, reference.tensor, e);
  error_maps_ += f.error_map ? 1 : 0;
  add_opinions(f, e, [&](Finding& other, const Expectation& by) {
    assay::judge(other, actual.tensor, reference.tensor, by);
  });
  if (f.verdict == Verdict::failed && !is_float(actual.tensor.dtype()))
    note_choices(f, actual.tensor.whole(), reference.tensor.whole());
}

void PairJudge::compare_sketches(Finding& f, const Pair& pair, const Expectation& e,
                                 const std::optional<ScaleConvention>& convention) const {
  Sides sides = sides_;
  sides.convention = convention;
  const SketchedPair both = sketched_pair(sides, pair);
  const Finding unjudged = f;
  judge_sketches(f, both, e);
  add_opinions(f, e, [&](Finding& other, const Expectation& by) {
    other = unjudged;
    judge_sketches(other, both, by);
  });
  if (options_.accept_sketches) accept_sketches(f);
}

void PairJudge::compare_recorded(Finding& f, const Pair& pair, const Expectation& e) const {
  const RecordedSide actual = recorded_side(actual_, *pair.actual, "actual");
  const RecordedSide reference = recorded_side(reference_, *pair.reference, "reference");
  const Finding unjudged = f;
  judge_recorded(f, actual, reference, e);
  add_opinions(f, e, [&](Finding& other, const Expectation& by) {
    other = unjudged;
    judge_recorded(other, actual, reference, by);
  });
  if (options_.accept_statistics) accept_statistics(f);
}

// Expert indices that differ: were the scores behind them nearly equal?
void PairJudge::note_choices(Finding& f, const Tensor& actual, const Tensor& reference) const {
  const auto scores = router_scores(f.id, reference_, reference_by_id_);
  if (!scores) return;
  Expectation e;
  e.policy = &options_.policies.front();
  row_dtype_.apply(e, scores->logits.dtype());
  const auto rows = e.policy->rows_of(e.row_dtype);
  if (rows.empty()) return;
  std::string note = explain_choices(actual, reference, *scores, rows.front());
  if (!note.empty()) f.notes.push_back(std::move(note));
}

}  // namespace assay
