#include "assay/compare/causes/explain_sketch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "assay/compare/calls/weighted_columns.h"
#include "assay/compare/causes/values/addends_by_place.h"
#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/causes/values/failing_pair.h"
#include "assay/compare/causes/values/other_tensor.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Values = std::vector<double>;

Values combined(const Values& a, double factor, const Values& b) {
  Values sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * b[i];
  return sum;
}

class Explanation {
 public:
  Explanation(const Sides& sides, const NearbyTensors& reference, const NearbyTensors& actual,
              const std::vector<KnownSize>& sizes, const Pair& pair, const SketchFit& fit,
              std::vector<Diagnosis>& found)
      : sides_(sides),
        reference_(reference),
        actual_(actual),
        names_(factor_names(sizes)),
        pair_(pair),
        own_(pair.reference->id),
        fit_(fit),
        found_(found) {}

  void sum_of_copies(const MergedSketch& actual) const {
    if (!actual.sum_of_replicas || actual.replicas.empty()) return;
    const Values rest = combined(actual.sum_of_replicas->values, -1, fit_.reference());
    if (const auto left = fit_.explained(rest, fit_.difference(), 0))
      found_.push_back({Cause::partial_sum, {.axis = actual.replicas.front().mesh_dim}, *left});
  }

  void factor() const {
    if (std::ranges::all_of(fit_.actual(), [](double v) { return v == 0; })) {
      found_.push_back({Cause::zeros, {}, 0});
      return;
    }
    const auto fits = [&](double k) {
      const bool has_name = k == -1 || !names_of(k, names_).empty();
      return fit_.explained(combined(Values(fit_.actual().size()), k, fit_.reference()),
                            has_name ? bits_of_choice(names_.size()) : bits_of_a_number, k);
    };
    auto f = fit_.factor(fit_.actual(), fit_.reference(), fits);
    if (!f) return;
    // Of sizes of the run, which may have more digits than a program's own numbers.
    for (const NamedFactor& named : names_) {
      const double k = std::copysign(named.value, f->value);
      const auto left = std::abs(f->value / k - 1) < same_factor ? fits(k) : std::nullopt;
      if (left && *left <= 2 * f->residual) f = SketchFit::Factor{k, *left};
    }
    if (f->value == -1)
      found_.push_back({Cause::sign, {}, f->residual});
    else
      found_.push_back(
          {Cause::factor, {.factor = f->value, .factor_names = names_of(f->value, names_)}, f->residual});
  }

  void stale() const {
    const auto candidates = reference_.in_other_calls(own_, pair_.reference->shape);
    for (const LogicalTensor* tensor : candidates) {
      const auto left = fit_.explained(values(sides_.reference, *tensor), bits_of_choice(candidates.size()));
      if (!left) continue;
      CauseParameters which;
      if (tensor->id.step != own_.step) which.step = tensor->id.step;
      if (tensor->id.micro_batch != own_.micro_batch) which.micro_batch = tensor->id.micro_batch;
      if (tensor->id.call != own_.call) which.call = tensor->id.call;
      found_.push_back({Cause::stale, std::move(which), *left});
      return;
    }
  }

  // A parameter's step, as a multiple of the reference's.
  void step() const {
    if (own_.phase != Phase::optimizer || own_.slot != "param") return;
    const Identity before{own_.step, -1, Phase::forward, own_.module, own_.slot, own_.arg, 0};
    const LogicalTensor *of_actual = actual_.find(before), *of_reference = reference_.find(before);
    if (of_actual == nullptr || of_reference == nullptr || of_reference->shape != pair_.reference->shape)
      return;
    const Values start = values(sides_.actual, *of_actual);
    const Values own = combined(fit_.actual(), -1, start),
                 right = combined(fit_.reference(), -1, values(sides_.reference, *of_reference));
    const auto said = [&](Cause cause, std::string how, double left) {
      found_.push_back({cause, {.step = own_.step, .how = std::move(how)}, left});
    };
    if (const auto left = fit_.explained(start, 0); left && step_is_nothing(own, right)) {
      const std::int64_t all = element_count(pair_.reference->shape);
      found_.push_back(
          {Cause::not_updated,
           {.elements = all,
            .of = all,
            .step = own_.step,
            .how = fmt::format("{0} of {0} elements are not updated: they are the parameter before "
                               "the step",
                               all)},
           *left});
      return;
    }
    const auto f = fit_.factor(own, right, [&](double k) {
      return fit_.explained(combined(own, -k, right), combined(own, -1, right), bits_of_a_number, k);
    });
    if (!f || f->value == 1) return;
    if (f->value == -1)
      said(Cause::step_sign, "the step goes up the gradient: it is that of the reference with the other sign",
           f->residual);
    else
      said(Cause::learning_rate, fmt::format("the step is {:.6g} times that of the reference", f->value),
           f->residual);
  }

  void added() const {
    const auto terms = reference_.terms_of(own_, pair_.reference->shape);
    const Values difference = fit_.difference();
    for (const NearbyTensors::Term& term : terms) {
      const LogicalTensor* tensor = reference_.find(term.id);
      if (tensor == nullptr || tensor->id == own_ || !is_float(tensor->dtype) ||
          tensor->shape != pair_.reference->shape)
        continue;
      const Values other = values(sides_.reference, *tensor);
      const auto sum = fit_.factor(difference, other, [&](double k) {
        return fit_.explained(combined(fit_.reference(), k, other),
                              bits_of_a_number + bits_of_choice(terms.size()), k);
      });
      if (!sum) continue;
      const bool decays =
          own_.phase == Phase::optimizer && term.id.slot == "param" && std::abs(sum->value) < 1;
      found_.push_back(
          {Cause::added,
           {.factor = sum->value, .term = term.name, .decays = decays, .tensor = to_string(term.id)},
           sum->residual});
      return;
    }
  }

  // A gradient in which the addends of ranks, each of its own micro-batches, count otherwise.
  void weights() const {
    Identity addends_id = pair_.actual->id;
    addends_id.arg += unreduced;
    const LogicalTensor* sum = is_whole_gradient(pair_.actual->id) ? actual_.find(addends_id) : nullptr;
    if (sum == nullptr || sum->shape != pair_.reference->shape) return;
    const std::vector<Addend> addends =
        addends_by_place(sides_.actual, *sum, [&](const Dump& one) { return values(one, *sum); });
    if (addends.size() < 2 || !fit_.has_room_for(addends.size())) return;
    std::vector<Values> columns;
    std::map<std::int64_t, std::size_t> of_micro_batch;
    std::size_t held = 0;
    for (const Addend& addend : addends) {
      for (const std::int64_t m : addend.micro_batches) of_micro_batch[m] = columns.size();
      held += addend.micro_batches.size();
      columns.push_back(addend.values);
    }
    if (held != of_micro_batch.size()) return;
    // The sum may have become an average.
    const auto of_right = weights_of({weighted_sum(columns, Values(columns.size(), 1))}, fit_.reference());
    if (!of_right) return;
    for (Values& column : columns) {
      for (double& x : column) x *= of_right->front();
    }
    const auto fitted = weights_of(columns, fit_.actual());
    if (!fitted) return;
    const auto counts = counts_of(*fitted, uncertainty_of_weights(unit_roundoff(sum->dtype)));
    if (!counts) return;
    const auto left =
        fit_.explained(weighted_sum(columns, *counts), bits_of_a_number * static_cast<double>(columns.size()),
                       std::ranges::max(*counts));
    if (!left) return;
    CauseParameters p;
    for (const auto& [micro_batch, addend] : of_micro_batch) {
      p.micro_batches.push_back(micro_batch);
      p.counts.push_back((*counts)[addend]);
    }
    found_.push_back({Cause::weights, std::move(p), *left});
  }

 private:
  static constexpr double same_factor =
      1e-3;  // to look at a name; whether it is one is seen by what it leaves

  Values values(const Dump& dump, const LogicalTensor& tensor) const {
    return merge_sketches(dump, tensor, fit_.sketch().spec).sketch.coarsened(fit_.sketch().spec).values;
  }

  static bool step_is_nothing(const Values& own, const Values& right) {
    double of_own = 0, of_right = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      of_own += own[i] * own[i];
      of_right += right[i] * right[i];
    }
    return of_own == 0 && of_right > 0;
  }

  const Sides& sides_;
  const NearbyTensors &reference_, &actual_;
  std::vector<NamedFactor> names_;
  const Pair& pair_;
  const Identity& own_;
  const SketchFit& fit_;
  std::vector<Diagnosis>& found_;
};

}  // namespace

SketchCauses::SketchCauses(const Sides& sides, std::vector<KnownSize> sizes)
    : sides_(sides),
      reference_(sides.reference, sides.reference_tensors, NearbyTensors::Holding::sketches),
      actual_(sides.actual, sides.actual_tensors, NearbyTensors::Holding::sketches),
      sizes_(std::move(sizes)) {}

void SketchCauses::explain(Finding& f, const Pair& pair) const {
  if (!is_float(f.actual_dtype) || !is_float(f.reference_dtype)) return;
  explain_float(f, pair, sketched_pair(sides_, pair));
  std::ranges::stable_sort(f.diagnoses, {},
                           [](const Diagnosis& d) { return std::pair(says(d.cause), d.residual); });
  const bool is_proved =
      std::ranges::any_of(f.diagnoses, [](const Diagnosis& d) { return says(d.cause) != Says::description; });
  if (f.verdict != Verdict::mistrusted || !is_proved) return;
  f.verdict = Verdict::failed;
  f.reason = "its cause is no rounding; " + f.reason;
}

void SketchCauses::explain_float(Finding& f, const Pair& pair, const SketchedPair& both) const {
  const SketchFit fit(f, both);
  const Explanation explanation(sides_, reference_, actual_, sizes_, pair, fit, f.diagnoses);
  explanation.sum_of_copies(both.actual);
  if (!f.diagnoses.empty()) return;
  explanation.factor();
  explanation.stale();
  explanation.step();
  explanation.added();
  explanation.weights();
  double least = infinity;
  for (const Diagnosis& d : f.diagnoses) least = std::min(least, d.residual);
  std::erase_if(f.diagnoses, [&](const Diagnosis& d) { return fit.is_refuted(d.residual, least); });
  if (std::string where = fit.where(); !where.empty()) f.notes.push_back("errors: " + where);
}

}  // namespace assay
