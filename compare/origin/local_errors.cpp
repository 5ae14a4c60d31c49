#include "assay/compare/origin/local_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/call_mistakes.h"
#include "assay/compare/result/metrics.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/io/json.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// The budget of one comparison, in terms of all judged calls: about a minute at the 1.5e7 terms a second of
// bounds. A root comes before its consequences, so the budget leaves out little that would say more.
constexpr double most_work = 0x1p30;

// The budget if every result is judged: about ten minutes. A step of a tiny model of 3,500 tensors takes a
// tenth of it.
constexpr double most_work_isolated = 0x1p33;

std::string pattern(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

// Whether the producer says so: a training step with --routing, which recorded the choice as the result of
// the router.
bool gives_choices(const Dump& dump) {
  return !dump.producer.empty() && parse_json(dump.producer, "manifest").find("routing") != nullptr;
}

// Whether both calls have the same floating-point inputs. An input of one side alone (a weight of rows, a
// bias) makes it another call. Choices may be recorded as an input, or be made in the call.
bool same_inputs(const std::vector<RecordedCall>& actual, const std::vector<RecordedCall>& reference) {
  if (actual.empty() || reference.empty()) return true;
  const auto names = [](const RecordedCall& call) {
    std::set<std::string> given;
    for (const RecordedCall::Input& input : call.inputs) {
      if (is_float(input.tensor->dtype)) given.insert(input.name);
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
             options_.isolate ? most_work_isolated : most_work) {}

std::optional<Call> LocalErrors::recorded_call(const Dump& dump, const RecordedCalls& calls,
                                               const LogicalTensor& tensor, const Finding& f) const {
  std::vector<RecordedCall> made_by = calls.producers(tensor);
  if (made_by.empty() || !std::ranges::all_of(made_by, &RecordedCall::is_complete)) return {};
  return std::make_optional<Call>(dump, std::move(made_by), merge(dump, tensor).tensor.whole(),
                                  worst_element(*f.metrics));
}

std::optional<LocalErrors::Judgement> LocalErrors::judge(Finding& f, const Pair& pair) {
  if (!f.metrics || pair.actual == nullptr || pair.reference == nullptr) {
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

std::optional<LocalErrors::Judgement> LocalErrors::judge_call(Finding& f, const Pair& pair) {
  const auto actual = recorded_call(sides_.actual, actual_calls_, *pair.actual, f);
  if (!actual) {
    ++unjudged_.no_call;
    return {};
  }
  if (!same_inputs(actual_calls_.producers(*pair.actual), reference_calls_.producers(*pair.reference))) {
    ++unjudged_.no_call;
    return {};
  }
  const Key key(&actual->op(), pattern(f.id.module));
  // A call that is right with the known attributes needs no second look at the reference.
  if (const auto known = known_variants_.find(key); known != known_variants_.end()) {
    const auto compared = judge_.compare(*actual, known->second);
    if (compared && judge_.is_within(*compared))
      return judgement(*actual, {known->second, *compared}, *pair.actual);
  }
  const auto reference = recorded_call(sides_.reference, reference_calls_, *pair.reference, f);
  const auto variant = reference ? fitted_variant(*reference, key) : std::nullopt;
  const auto compared = variant ? judge_.compare(*actual, *variant) : std::nullopt;
  if (!compared) {
    ++(reference ? unjudged_.no_fit : unjudged_.no_call);
    return {};
  }
  if (!judge_.is_within(*compared)) {
    if (const auto other = variant_of_both(*actual, *reference, *variant, key))
      return judgement(*actual, *other, *pair.actual);
    if (options_.cases != nullptr) options_.cases->add(f, *actual, *variant);
  }
  return judgement(*actual, {*variant, *compared}, *pair.actual);
}

// Attributes that the reference does not tell apart are no mistake: an epsilon beside large inputs.
std::optional<LocalErrors::Judged> LocalErrors::variant_of_both(const Call& actual, const Call& reference,
                                                                const CallVariant& but, const Key& key) {
  for (const CallVariant& v : variants_of(actual.op())) {
    if (v.text == but.text || v.fp8 != but.fp8 || refused_variants_[key].contains(v.text)) continue;
    auto compared = judge_.fit(actual, v);
    if (compared && judge_.fit(reference, v)) return Judged{v, std::move(*compared), true};
  }
  return {};
}

Exemption::Kind LocalErrors::exemption_of(const Judged& judged) {
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
  found.exemption = exemption_of(judged);
  found.is_whole =
      !actual.is_sampled() && (is_float(c.actual.dtype()) || c.actual.values() == c.golden.values());
  found.diagnoses = explain_call(judge_, actual, judged.variant, c, options_.sizes,
                                 [&] { return other_operands_.of(actual_calls_, made); });
  if (c.ratio <= 1 && !judge_.is_within(c)) {
    found.ratio = std::abs(c.scale->excess) / c.scale->allowed;
    found.how = fmt::format(
        "{} on its own recorded inputs: each element is within its bound (error/allowed {:.3g}), but {}",
        name, c.ratio, describe(*c.scale));
  }
  return found;
}

// The attributes with which the reference's recording is right. Blocks that are not known prove no fp8: that
// other results have to.
std::optional<CallVariant> LocalErrors::fitted_variant(const Call& reference, const Key& key) {
  if (const auto known = known_variants_.find(key); known != known_variants_.end()) {
    if (judge_.fit(reference, known->second)) return known->second;
    const auto in_any = reference.compare_in_any_blocks(known->second);
    if (in_any && judge_.is_within(*in_any)) return known->second;
  }
  std::optional<CallJudge::Fit> found;
  for (const CallVariant& v : variants_of(reference.op())) {
    if (auto compared = judge_.fit(reference, v)) {
      found = {v, std::move(*compared)};
      break;
    }
    if (!judge_.is_spent()) refused_variants_[key].insert(v.text);
  }
  if (!found) found = judge_.first_fit(reference, judge_.with_bisected(reference, {}));
  if (!found && !judge_.is_spent()) found = judge_.first_fit(reference, reference.with_factor());
  if (!found && !judge_.is_spent()) found = judge_.first_fit(reference, reference.with_candidates());
  if (!found) return {};
  return known_variants_[key] = found->variant;
}

}  // namespace assay
