#include "assay/compare/origin/local_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/call_mistakes.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/origin/propagated_error.h"
#include "assay/compare/result/metrics.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/io/json.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// The budget of one comparison, in terms of all judged calls: about a minute at the 1.5e7 terms a second of
// bounds. A root comes before its consequences, so the budget leaves out little that would say more.
constexpr double most_work = 0x1p30;

// The budget if every result is judged: about ten minutes. A step of a tiny model of 3,500 tensors takes a
// tenth of it.
constexpr double most_work_isolated = 0x1p33;

// Whether the producer says so: a training step with --routing, which recorded the choice as the result of
// the router.
bool gives_choices(const Dump& dump) {
  return !dump.producer.empty() && parse_json(dump.producer, "manifest").find("routing") != nullptr;
}

struct Norms {
  void see(double x) {
    squares += x * x;
    largest = std::max(largest, std::abs(x));
  }
  double squares = 0, largest = 0;
};

// How far the inputs of both sides move the golden result, beside its answers to inputs that differ by as
// much at random. What each side's own roundings add to that is within the bound by which the result was
// judged.
std::optional<double> beside_random(const Call& actual, const Call& reference, const CallVariant& variant) {
  // As propagated_error allows: differences of neighbours are not independent.
  constexpr double growth = 2;
  constexpr int draws = 4;
  if (!is_float(actual.result().dtype())) return {};
  const std::vector<double> ours = actual.values(variant), theirs = reference.values(variant);
  if (ours.size() != theirs.size() || ours.empty() || differs_as_one(actual.result().values(), ours))
    return {};
  Norms found, answered;
  for (std::size_t i = 0; i < ours.size(); ++i) found.see(ours[i] - theirs[i]);
  for (std::uint64_t draw = 0; draw < draws; ++draw) {
    const auto answer = actual.answer_to(reference, variant, draw << 48);
    if (!answer) return {};
    for (const double x : *answer) answered.see(x);
  }
  // Norms of few numbers are uncertain: that of n is off by 1/sqrt(2 n) of itself, its estimate by half of
  // that. Three times both.
  const double uncertain = 3 * 1.5 / std::sqrt(2 * static_cast<double>(ours.size()));
  const double allowed = growth * (1 + uncertain);
  const double norm = std::sqrt(answered.squares / draws);
  if (found.largest == 0) return 0;
  return std::max(std::sqrt(found.squares) / norm, found.largest / answered.largest) / allowed;
}

// Whether both calls have the same floating-point inputs. An input of one side alone (a weight of rows, a
// bias) makes it another call. Choices may be recorded as an input, or be made in the call.
bool same_inputs(const std::vector<RecordedCall>& actual, const std::vector<RecordedCall>& reference) {
  if (actual.empty() || reference.empty()) return true;
  const auto names = [](const RecordedCall& call) {
    std::set<std::string> given;
    for (const RecordedCall::Input& input : call.inputs) {
      const Arg* arg = find_arg(*call.op, input.name);
      const bool is_index = arg != nullptr && holds_indices(*arg);  // a mask may be one of floats
      if (is_float(input.tensor->dtype) && !is_index) given.insert(input.name);
    }
    return given;
  };
  return names(actual.front()) == names(reference.front());
}

}  // namespace

LocalErrors::LocalErrors(const Sides& sides, Options options)
    : sides_(sides),
      options_(std::move(options)),
      actual_calls_(sides.actual_tensors, gives_choices(sides.actual)),
      reference_calls_(sides.reference_tensors, gives_choices(sides.reference)),
      other_operands_(sides_.actual, sides_.actual_tensors),
      judge_(options_.isolate ? CallJudge::Standard::whole : CallJudge::Standard::elements,
             options_.isolate ? most_work_isolated : most_work),
      fitted_(judge_),
      actual_sums_(sides.convention ? 1 / sides.convention->factor : 1),
      ahead_(options_.threads) {}

std::optional<Call> LocalErrors::recorded_call(const Dump& dump, const RecordedCalls& calls,
                                               const LogicalTensor& tensor) const {
  std::vector<RecordedCall> made_by = calls.producers(tensor);
  if (made_by.empty() || !std::ranges::all_of(made_by, &RecordedCall::is_complete)) return {};
  Call call(dump, std::move(made_by), merge(dump, tensor).tensor.whole());
  if (is_whole_gradient(tensor.id))
    call.take_factor(&calls == &actual_calls_ ? actual_sums_ : reference_sums_);
  return call;
}

std::optional<LocalErrors::Judgement> LocalErrors::judge(Finding& f, const Pair& pair) {
  if (pair.actual == nullptr || without_bits(sides_.actual, *pair.actual) != nullptr ||
      (pair.reference != nullptr && without_bits(sides_.reference, *pair.reference) != nullptr)) {
    ++unjudged_.no_call;
    return {};
  }
  if (judge_.is_spent()) {
    ++unjudged_.no_budget;
    return {};
  }
  std::optional<Judgement> judgement;
  if (const auto trouble = trouble_in([&] { judgement = judge_call(f, pair); })) {
    ++unjudged_.unreadable;
    f.notes.push_back(fmt::format("not judged on its own recorded inputs: {}", *trouble));
    return {};
  }
  return judgement;
}

// With the attributes that are known by now.
bool LocalErrors::look_ahead(const Pair& pair) {
  if (judge_.is_spent()) return false;
  const std::vector<RecordedCall> made_by = actual_calls_.producers(*pair.actual);
  const CallVariant* known = made_by.empty()
                                 ? nullptr
                                 : fitted_.known(*made_by.front().op, actual_calls_.module_of(*pair.actual),
                                                 made_by.front().attributes);
  if (known == nullptr) return made_by.empty();
  // The first of its gradients makes them all, on all threads.
  if (!made_by.front().op->functional_inputs.empty() && is_gradient(pair.actual->id)) return false;
  return ahead_.begin(pair.actual,
                      [this, made = pair.actual, variant = *known]() -> std::optional<FirstLook> {
                        auto call = recorded_call(sides_.actual, actual_calls_, *made);
                        if (!call) return {};
                        auto compared = judge_.first_look(*call, variant);
                        return FirstLook{std::move(*call), variant, std::move(compared)};
                      });
}

// Nothing if they do not make the result at first sight.
std::optional<LocalErrors::Judgement> LocalErrors::judge_as_known(const Call& whole, const CallVariant& known,
                                                                  const LogicalTensor& made,
                                                                  const std::optional<FirstLook>& ahead) {
  judge_.spend_first_look(whole);
  const auto look = [&] {
    Call call = whole;
    last_.give(call, actual_calls_.producers(made), known, true);
    return judge_.first_look(call, known);
  };
  const auto compared = ahead && is_same(ahead->variant, known) ? ahead->compared : look();
  return compared ? std::optional(judgement(whole, {known, *compared}, made)) : std::nullopt;
}

std::optional<LocalErrors::Judgement> LocalErrors::judge_call(Finding& f, const Pair& pair) {
  const std::optional<FirstLook> ahead = ahead_.take(pair.actual);
  const auto whole =
      ahead ? std::optional(ahead->call) : recorded_call(sides_.actual, actual_calls_, *pair.actual);
  if (!whole) {
    ++unjudged_.no_call;
    return {};
  }
  if (pair.reference != nullptr &&
      !same_inputs(actual_calls_.producers(*pair.actual), reference_calls_.producers(*pair.reference))) {
    ++unjudged_.no_call;
    return {};
  }
  const auto quick = [&](const CallVariant& variant) -> std::optional<Judgement> {
    const auto compared = judge_.compare_quickly(*whole, variant);
    return compared ? std::optional(judgement(*whole, {variant, *compared}, *pair.actual)) : std::nullopt;
  };
  const std::int64_t worst = f.metrics ? worst_element(*f.metrics) : -1;
  const Call actual = whole->in_some_rows(work_of_recorded, worst);
  const std::string& module = actual_calls_.module_of(*pair.actual);
  // A call that is right with the known attributes needs no second look at the reference.
  if (const CallVariant* known = fitted_.known(actual.op(), module, actual.recorded())) {
    if (auto right = judge_as_known(*whole, *known, *pair.actual, ahead)) return right;
    const auto compared = judge_.compare(actual, *known);
    if (compared && judge_.is_within(*compared)) return judgement(actual, {*known, *compared}, *pair.actual);
  }
  if (pair.reference == nullptr) {
    ++unjudged_.no_call;
    return {};
  }
  auto reference = recorded_call(sides_.reference, reference_calls_, *pair.reference);
  if (reference) reference = reference->in_some_rows(work_of_recorded, worst);
  const auto variant = reference ? fitted_.fit(*reference, module) : std::nullopt;
  if (variant) {
    if (auto right = quick(*variant)) return right;
  }
  const auto compared = variant ? judge_.compare(actual, *variant) : std::nullopt;
  if (!compared) {
    ++(reference ? unjudged_.no_fit : unjudged_.no_call);
    return {};
  }
  if (!judge_.is_within(*compared)) {
    if (auto other = fitted_.fit_both(actual, *reference, *variant, module))
      return judgement(actual, {std::move(other->variant), std::move(other->compared), true}, *pair.actual);
    if (options_.cases != nullptr) options_.cases->add(f, actual, *variant);
  }
  return judgement(actual, {*variant, *compared}, *pair.actual);
}

std::optional<LocalErrors::Judgement> LocalErrors::wrong_reference(const Finding& f, const Pair& pair) {
  if (pair.reference == nullptr || without_bits(sides_.reference, *pair.reference) != nullptr) return {};
  std::optional<Judgement> wrong;
  (void)trouble_in([&] {
    const auto call = recorded_call(sides_.reference, reference_calls_, *pair.reference);
    const CallVariant* known =
        call ? fitted_.known(call->op(), reference_calls_.module_of(*pair.reference), call->recorded())
             : nullptr;
    if (known == nullptr || judge_.is_spent()) return;
    const Call some =
        call->in_some_rows(work_of_recorded, f.metrics ? worst_element(*f.metrics) : std::int64_t{-1});
    const auto compared = judge_.compare(some, *known);
    if (!compared || judge_.is_within(*compared)) return;
    // Attributes that no result before has shown may have made both.
    const auto actual = recorded_call(sides_.actual, actual_calls_, *pair.actual);
    if (actual && fitted_.fit_both(*actual, some, *known, reference_calls_.module_of(*pair.reference)))
      return;
    wrong = judgement(some, {*known, *compared}, *pair.reference);
  });
  return wrong;
}

std::optional<double> LocalErrors::beside_random_inputs(const Pair& pair) {
  if (pair.actual == nullptr || pair.reference == nullptr) return {};
  std::optional<double> ratio;
  (void)trouble_in([&] {
    const auto actual = recorded_call(sides_.actual, actual_calls_, *pair.actual),
               reference = recorded_call(sides_.reference, reference_calls_, *pair.reference);
    if (!actual || !reference || judge_.is_spent()) return;
    const CallVariant* known =
        fitted_.known(actual->op(), actual_calls_.module_of(*pair.actual), actual->recorded());
    if (known != nullptr) ratio = beside_random(*actual, *reference, *known);
  });
  return ratio;
}

Exemption::Kind LocalErrors::exemption_of(const Judged& judged) {
  if (judged.compared.ties > 0 || !is_float(judged.compared.actual.dtype()))
    return Exemption::Kind::legal_tie;
  if (judged.is_equivalent) return Exemption::Kind::equivalent_attribute;
  return judged.compared.in_any_blocks ? Exemption::Kind::order_of_blocks
                                       : Exemption::Kind::amplified_rounding;
}

LocalErrors::Judgement LocalErrors::judgement(const Call& actual, const Judged& judged,
                                              const LogicalTensor& made) {
  const Call::Compared& c = judged.compared;
  const std::string name = fmt::format("{}{}", actual.op().name,
                                       judged.variant.text.empty() ? "" : " (" + judged.variant.text + ")");
  Judgement found{
      c.ratio, fmt::format("{} on its own recorded inputs: error/allowed {:.3g}", name, c.ratio), {}};
  if (c.ties > 0)
    found.how = fmt::format(
        "{} on its own recorded inputs: {} of its rows chose one of two that roundings cannot tell apart",
        name, c.ties);
  found.exemption = exemption_of(judged);
  found.is_whole = !actual.is_sampled();
  found.diagnoses = explain_call(judge_, actual, judged.variant, c, options_.sizes,
                                 [&] { return other_operands_.of(actual_calls_, made); });
  if (!(c.ratio <= 1) && found.diagnoses.empty() && found.is_whole && is_float(c.actual.dtype()))
    found.right = RightValue{c.golden, c.allowed};
  if (c.ratio <= 1 && !judge_.is_within(c)) {
    found.ratio = std::abs(c.scale->excess) / c.scale->allowed;
    found.how = fmt::format(
        "{} on its own recorded inputs: each element is within its bound (error/allowed {:.3g}), but {}",
        name, c.ratio, describe(*c.scale));
  }
  return found;
}

}  // namespace assay
