#include "assay/compare/flow/flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "assay/compare/flow/found_operators.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/flow/scale_of_sums.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// Nearly a hundred operators are tried on an unknown class, each with its attributes: of some rows, for a
// hundredth of a second.
constexpr double work_of_a_try = 0x1p18;
// One row of a product takes all of its weights, the fewest rows of what is wide a little more than a try.
constexpr double work_of_a_row = 0x1p26;

}  // namespace

Flow::Flow(const Sides& sides, RecordedCalls& actual, RecordedCalls& reference, CallJudge& judge,
           FittedCalls& fitted, LastResults& last)
    : actual_(sides.actual, sides.actual_tensors, sides.convention),
      reference_(sides.reference, sides.reference_tensors),
      actual_calls_(actual),
      reference_calls_(reference),
      fitted_(fitted),
      scalars_(reference_),
      last_(last) {
  const auto makes_some = [&](double work, const RecordedCall& call, const LogicalTensor& result) {
    if (judge.is_spent()) return false;
    bool fits = false;
    (void)trouble_in([&] {
      const Call all(sides.reference, {call}, merge(sides.reference, result).tensor.whole());
      const Call tried = all.in_some_rows(work, 0);
      if (tried.work() > (tried.is_sampled() ? std::max(work, work_of_a_row) : work)) return;
      // Of all that may have made it few make some of its rows.
      const Call some = tried.in_some_rows(work_of_a_try, 0);
      const auto variant = fitted_.fit(some, result.id.module);
      fits = variant && (some.work() == tried.work() || judge.fit(tried, *variant));
    });
    return fits;
  };
  const Makes makes = std::bind_front(makes_some, infinity);
  find_operators(reference_, std::bind_front(makes_some, work_of_a_try), reference, actual);
  relations_ = find_relations(reference_, reference, makes);
  (void)trouble_in([&] { join_aliases(); });
  for (const auto& [target, r] : relations_.made) {
    if (r.kind != Relation::Kind::rows || r.choice < 0) continue;
    for (const std::string& module : {target.module, module_around(target.module)}) {
      if (!module.empty()) conditions_[module] = {r.sources.back(), r.choice};
    }
  }
  for (const Borrowed& b : relations_.borrowed) {
    lend(b, reference_, reference);
    lend(b, actual_, actual);
  }
  for (const HiddenCall& h : relations_.hidden) {
    lend(h, reference_, reference);
    lend(h, actual_, actual);
  }
  reference_sums_ = assay::scale_of_sums(reference_, reference, judge);
  std::set<Name> ends;
  for (const LogicalTensor& t : sides.reference_tensors) {
    if (t.id.slot != "grad_output" || reference_.find(t.id) != &t) continue;
    if (ends.insert(name_of(t.id)).second || hidden_.knows(value_of(t.id)))
      (void)trouble_in([&] { ends_here(t); });
  }
  (void)trouble_in([&] {
    if (!hidden_.find_values(reference_, reference) && find_added_losses())
      hidden_.find_values(reference_, reference);
  });
  for (const Borrowed& s : relations_.shared) {
    reference.share_parameter(s.source, s.input);
    actual.share_parameter(s.source, s.input);
  }
}

std::optional<Flow::Made> Flow::made(const Side& side, const LogicalTensor& t) const {
  if (t.id.micro_batch < 0) return made_of_step(side, t);
  if (t.id.phase == Phase::forward) return made_forward(side, t);
  return t.id.phase == Phase::backward && is_gradient(t.id) ? made_backward(side, t) : std::nullopt;
}

std::optional<Flow::Made> Flow::made_forward(const Side& side, const LogicalTensor& t) const {
  if (t.id.slot == "loss" && !relations_.made.contains(name_of(t.id))) {
    auto value = hidden_.value(side.values, side.calls, t.id);
    return value ? std::optional(Made{std::move(value->expected), value->how}) : std::nullopt;
  }
  const Relation* r = relation_of(t.id);
  if (r == nullptr) return {};
  auto expected = evaluate(*r, t.shape, reader_at(side.values, t.id));
  if (!expected) return {};
  return Made{std::move(*expected), describe(*r, t.id.step, t.id.micro_batch),
              r->kind == Relation::Kind::copy};
}

// A parameter's gradient is the sum of its shares; a step begins with what the one before left.
std::optional<Flow::Made> Flow::made_of_step(const Side& side, const LogicalTensor& t) const {
  if (auto scalar = scalars_.made(side.values, t.id)) return Made{std::move(scalar->expected), scalar->how};
  if (t.id.slot == "grad" && t.id.arg.ends_with(unreduced) && !side.calls.runs(t.id.step, t.id.module) &&
      side.calls.producers(t).empty()) {
    DerivedValue none;
    none.values.resize(static_cast<std::size_t>(element_count(t.shape)), 0);
    none.is_exact = true;
    return Made{std::move(none), "0, as the module did not run in this step"};
  }
  if (t.id.slot == "grad" && relations_.uses.contains(parameter_of(t.id))) {
    if (auto sum = gradient_of_parameter(side, t)) return sum;
  }
  Identity source = t.id;
  if (t.id.slot == "grad" && !t.id.arg.ends_with(unreduced)) {
    source.arg += unreduced;
  } else if (t.id.phase == Phase::forward && (t.id.slot == "param" || t.id.slot == "state") &&
             t.id.step > 0) {
    --source.step;
    source.phase = Phase::optimizer;
  } else if (t.id.phase == Phase::optimizer && t.id.slot == "param") {
    source.slot = "state";  // a narrow parameter is a copy of its master
    source.arg += ".master";
  } else {
    return {};
  }
  const LogicalTensor* before = side.values.find(source);
  if (before == nullptr) return {};
  DerivedValue e = as_expected(*side.values.read(*before));
  if (e.values.size() != static_cast<std::size_t>(element_count(t.shape))) return {};
  const bool is_sum = t.id.slot == "grad";
  const double scale = is_sum ? scale_of_sums(&side.values == &actual_) : 1;
  for (double& v : e.values) v *= scale;
  for (double& m : e.magnitude) m *= std::abs(scale);
  if (scale != 1) ++e.terms;
  return Made{std::move(e),
              (scale != 1 ? fmt::format("{:.6g} times ", scale) : "") + (is_sum ? "the sum of " : "") +
                  to_string(source) + (is_sum ? ", its shares" : ""),
              !is_sum};
}

// First with a part of what calls may be off by, where that is less work.
std::optional<Flow::Nearness> Flow::nearness(const Side& side, const LogicalTensor& t) const {
  const int ranks = &side.values == &actual_ ? actual_.dump().world_size : 1;
  const auto recorded = side.values.read(t);
  const auto look = [&](bool quick, bool apart) -> std::optional<Nearness> {
    is_quick_ = quick;
    is_apart_ = apart;
    was_quick_ = was_together_ = false;
    auto own = made(side, t);
    is_quick_ = is_apart_ = false;
    if (!own) return {};
    Nearness near{std::move(*own)};
    near.ratio = ranks > 1 ? ratio_of_ranks(near.made.expected, *recorded, ranks, near.outside)
                           : assay::ratio(near.made.expected, *recorded, near.outside);
    return near;
  };
  auto near = look(true, false);
  if (near && !(near->ratio <= 1) && was_quick_) near = look(false, false);
  if (near && !(near->ratio <= 1) && was_together_) near = look(false, true);
  return near;
}

// The gradient of a parameter whose module had no tokens on the actual side.
bool Flow::is_without_tokens(const Identity& id) const {
  if (id.slot != "grad" || !id.arg.ends_with(unreduced) || actual_calls_.runs(id.step, id.module))
    return false;
  const std::vector<Identity> calls = reference_calls_.runs_of(id.step, id.module);
  return !calls.empty() && std::ranges::all_of(calls, [&](const Identity& call) {
    const auto condition = condition_of(call);
    return condition && chosen(true, *condition, call) == false;
  });
}

bool Flow::is_same(const LogicalTensor& reference, const LogicalTensor& actual) const {
  if (without_bits(actual_.dump(), actual) != nullptr ||
      without_bits(reference_.dump(), reference) != nullptr)
    return false;
  const auto a = actual_.read(actual), r = reference_.read(reference);
  if (a->values.size() != r->values.size() || !is_float(a->dtype) || !is_float(r->dtype))
    return a->values == r->values;
  const double scale = actual_.scale_of(actual.id);
  const DType narrow = unit_roundoff(a->dtype) > unit_roundoff(r->dtype) ? a->dtype : r->dtype;
  for (std::size_t i = 0; i < a->values.size(); ++i) {
    const double x = round_to(narrow, a->values[i]), y = round_to(narrow, r->values[i] * scale);
    if (x != y && !(std::isnan(x) && std::isnan(y))) return false;
  }
  return true;
}

std::optional<Flow::Condition> Flow::condition_of(const Identity& id) const {
  if (id.micro_batch < 0) return {};
  for (std::string module = id.module; !module.empty(); module = module_around(module)) {
    if (const auto found = conditions_.find(module); found != conditions_.end()) return found->second;
  }
  return {};
}

std::optional<bool> Flow::chosen(bool on_actual, const Condition& condition, const Identity& id) const {
  const SideValues& side = on_actual ? actual_ : reference_;
  const LogicalTensor* index = side.find(at(condition.index, id.step, id.micro_batch));
  if (index == nullptr) return {};
  const auto tensor = side.read(*index);
  return std::ranges::find(tensor->values, static_cast<double>(condition.choice)) != tensor->values.end();
}

std::optional<Flow::Judgement> Flow::judge(const LogicalTensor* reference, const LogicalTensor& actual,
                                           bool agrees) {
  if (without_bits(actual_.dump(), actual) != nullptr) return {};
  if (auto number = reference != nullptr ? judge_number(*reference, actual) : std::nullopt) return number;
  if (is_without_tokens(actual.id)) {
    const auto recorded = actual_.read(actual);
    const auto wrong = std::ranges::count_if(recorded->values, [](double v) { return v != 0; });
    Judgement j{.ratio = wrong > 0 ? infinity : 0, .how = "0, as no token chose it in this step"};
    if (wrong > 0)
      j.wrong = fmt::format("{} of {} elements are not 0, and no token chose it in this step", wrong,
                            element_count(actual.shape));
    return j;
  }
  const Side own_side{actual_, actual_calls_};
  if (reference != nullptr && reference_.find(reference->id) != reference) return {};
  // What agrees with the reference and with what it is made of needs no other proof of that.
  auto near = agrees ? nearness(own_side, actual) : std::nullopt;
  if (!near || !(near->ratio <= 1)) {
    if (reference != nullptr && !holds_in_reference(*reference)) return {};
    near = nearness(own_side, actual);
  }
  if (!near) return {};
  const Choice choice = near->ratio <= 1 ? choice_of_rows(reference, actual) : Choice::same;
  if (choice == Choice::other) return {};
  const Made* own = &near->made;
  Judgement j;
  const auto recorded = actual_.read(actual);
  j.ratio = near->ratio;
  j.how = own->how;
  j.is_copy = own->is_copy;
  j.is_reordered = choice == Choice::other_order;
  if (j.is_reordered) j.how += " in another order, which other micro-batches show to mean nothing";
  if (!(j.ratio <= 1)) {
    const std::int64_t size = element_count(actual.shape);
    j.wrong = own->is_copy ? fmt::format(
                                 "it is not what {} gave, as it is in the reference: {} of {} elements were "
                                 "changed between them",
                                 own->how, near->outside, size)
                           : fmt::format("{} of {} elements are not {}, as they are in the reference",
                                         near->outside, size, own->how);
    j.right = right_value(own->expected, *recorded);
    (void)trouble_in([&] { j.mistake = mistake_in(actual, *recorded); });
    if (j.right && !j.mistake) (void)trouble_in([&] { add_terms(actual, *j.right); });
  } else if (const auto scale = scale_of_sum(own->expected, *recorded);
             scale && !scale->within() && reference != nullptr && has_no_factor(*reference)) {
    j.ratio = std::abs(scale->excess) / scale->allowed;
    j.wrong = fmt::format("each element is within the roundings of {}, but {}", own->how, describe(*scale));
    j.mistake = Diagnosis{Cause::factor,
                          {.factor = 1 + scale->excess, .uncertainty = scale->allowed, .how = own->how},
                          near->ratio};
  }
  return j;
}

}  // namespace assay
