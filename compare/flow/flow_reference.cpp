// Whether the reference is made as its flow says, and the losses that it shows where it is not.
#include <algorithm>

#include "assay/compare/flow/chosen_rows.h"
#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/result/trouble.h"

namespace assay {

// What is missing to a gradient may come from a loss that nobody recorded.
bool Flow::holds_in_reference(const LogicalTensor& t) {
  const Side side{reference_, reference_calls_};
  const auto near = nearness(side, t);
  if (!near) return ends_here(t);
  if (near->ratio <= 1 || holds_with_other_attributes(t) || ends_here(t)) return true;
  const Made* right = &near->made;
  const auto recorded = reference_.read(t);
  if (!is_gradient(t.id) || right->expected.values.size() != recorded->values.size()) return false;
  std::vector<double> missing, error;
  for (std::size_t i = 0; i < recorded->values.size(); ++i) {
    missing.push_back(recorded->values[i] - right->expected.values[i]);
    // What is missing was stored before it was added, and is in the sum that was stored.
    error.push_back(allowed(right->expected, *recorded, i) +
                    2 * unit_roundoff(recorded->dtype) * std::abs(missing.back()));
  }
  return hidden_.fit(reference_, reference_calls_, value_of(t.id), t.id, missing, error);
}

bool Flow::are_chosen_rows(const Identity& id) const {
  const Relation* r = id.phase == Phase::forward ? relation_of(id) : nullptr;
  return r != nullptr && r->kind == Relation::Kind::chosen;
}

// Other rows than the reference's may be as right, but nobody knows that. Their order means nothing where
// data decides it, as it does where other micro-batches have another one.
Flow::Choice Flow::choice_of_rows(const LogicalTensor* reference, const LogicalTensor& actual) const {
  if (!are_chosen_rows(actual.id)) return Choice::same;
  const Relation* r = relation_of(actual.id);
  const auto choice_in = [&](const SideValues& side, const LogicalTensor& t) -> std::optional<RowChoice> {
    const auto source = reader_at(side, t.id)(r->sources.front());
    return source == nullptr ? std::nullopt : chosen_rows(*source, *side.read(t));
  };
  const auto own = choice_in(actual_, actual);
  const auto right = reference == nullptr ? std::nullopt : choice_in(reference_, *reference);
  if (!own || !right) return Choice::other;
  if (own->rows == right->rows) return Choice::same;
  const bool varies =
      std::ranges::any_of(reference_.named(name_of(reference->id)), [&](const LogicalTensor* t) {
        const auto other = choice_in(reference_, *t);
        return other && other->rows != right->rows;
      });
  return varies && have_the_same_rows(*own, *right) ? Choice::other_order : Choice::other;
}

// A result may not tell which of the attributes that were seen made it (those of other layers, or whether
// there were roundings between its steps), and its gradient does.
bool Flow::holds_with_other_attributes(const LogicalTensor& t) {
  const auto uses = relations_.uses.find(value_of(t.id));
  for (const Use& use : uses == relations_.uses.end() ? std::vector<Use>() : uses->second) {
    LogicalTensor wanted = t;
    wanted.id = gradient_of(use.target, t.id);
    const std::vector<RecordedCall> calls =
        use.is_input ? reference_calls_.producers(wanted) : std::vector<RecordedCall>();
    if (calls.empty()) continue;
    const FittedCalls::OfModule of{*calls.front().op, use.target.module, calls.front().attributes};
    const CallVariant* own = fitted_.known(of.op, of.module, of.recorded);
    if (own == nullptr) continue;
    const CallVariant before = *own;
    const auto makes_it = [&](const CallVariant& other) {
      fitted_.try_out(of, other);
      const auto near = nearness({reference_, reference_calls_}, t);
      const bool is_it = near && near->ratio <= 1;
      is_it ? fitted_.take(of, other) : fitted_.end_trial();
      return is_it;
    };
    if (std::ranges::any_of(fitted_.others(of, before), makes_it)) return true;
    for (const CallVariant& other : fitted_.seen_beside(of, before)) {
      if (makes_results(of, wanted, other) && makes_it(other)) return true;
    }
  }
  return false;
}

// Whether results of the reference that were recorded with a gradient have these attributes, too.
bool Flow::makes_results(const FittedCalls::OfModule& of, const LogicalTensor& gradient,
                         const CallVariant& variant) const {
  bool is_any = false;
  for (const LogicalTensor* t : reference_calls_.around(gradient)) {
    if (t->id.slot != "output" || t->id.phase != Phase::forward) continue;
    const std::vector<RecordedCall> calls = reference_calls_.producers(*t);
    if (calls.size() != 1 || calls.front().op != &of.op || !calls.front().is_complete()) continue;
    is_any = true;
    const Call made(reference_.dump(), calls, merge(reference_.dump(), *t).tensor.whole());
    if (!fitted_.makes_too(of, made, variant)) return false;
  }
  return is_any;
}

// What is missing to the gradients of one micro-batch.
bool Flow::find_added_losses() {
  const std::vector<LogicalTensor>& all = reference_.tensors();
  const auto first = std::ranges::find_if(all, [](const LogicalTensor& t) { return is_gradient(t.id); });
  for (auto t = first; t != all.end(); ++t) {
    const bool is_near = t->id.step == first->id.step && t->id.micro_batch == first->id.micro_batch;
    if (is_near && is_gradient(t->id) && reference_.find(t->id) == &*t)
      (void)trouble_in([&] { (void)holds_in_reference(*t); });
  }
  return hidden_.knows_added();
}

// A value that nobody uses goes into a loss.
bool Flow::ends_here(const LogicalTensor& t) {
  const Name value = value_of(t.id);
  if (t.id.slot != "grad_output" || t.id.micro_batch < 0 || relations_.uses.contains(value)) return false;
  const auto recorded = reference_.read(t);
  std::vector<double> error;
  for (const double v : recorded->values)
    error.push_back(unit_roundoff(recorded->dtype) * std::abs(v) + min_subnormal(recorded->dtype));
  return hidden_.fit(reference_, reference_calls_, value, t.id, recorded->values, error, true);
}

bool Flow::has_no_factor(const LogicalTensor& t) const {
  const auto near = nearness({reference_, reference_calls_}, t);
  const auto scale = near ? scale_of_sum(near->made.expected, *reference_.read(t)) : std::nullopt;
  return scale && scale->within();
}

}  // namespace assay
