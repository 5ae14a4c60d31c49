#include "assay/compare/origin/local_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/diagnosis.h"
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

constexpr double share_of_values = 1. / 40;  // of that of bounds: 6e8 terms a second

std::string pattern(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

// A flag is 0 or 1.
std::optional<double> number_of(const AttributeValue& v) {
  if (const bool* flag = std::get_if<bool>(&v)) return *flag ? 1 : 0;
  const double* number = std::get_if<double>(&v);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

AttributeValue value_of(const CallVariant& v, const Attribute& attribute) {
  const auto given = v.attributes.values().find(attribute.name);
  return given == v.attributes.values().end() ? parse_attribute(attribute.initial) : given->second;
}

// What a call has in the place of the right attributes; of one alone its name and both numbers, too.
CauseParameters other_attributes(const Operator& op, const CallVariant& actual, const CallVariant& right) {
  CauseParameters p = {
      .op = std::string(op.name), .actual_attributes = actual.text, .reference_attributes = right.text};
  std::vector<const Attribute*> different;
  for (const Attribute& a : op.attributes) {
    if (value_of(actual, a) != value_of(right, a)) different.push_back(&a);
  }
  if (different.size() != 1) return p;
  p.attribute = different.front()->name;
  p.value = number_of(value_of(actual, *different.front()));
  p.reference_value = number_of(value_of(right, *different.front()));
  return p;
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
      reference_calls_(sides.reference_tensors, gives_choices(sides.reference)) {}

bool LocalErrors::is_spent() const {
  return work_ > (options_.isolate ? most_work_isolated : most_work);
}

std::optional<JudgedCall> LocalErrors::recorded_call(const Dump& dump, const RecordedCalls& calls,
                                                     const LogicalTensor& tensor, const Finding& f) const {
  std::vector<RecordedCall> made_by = calls.producers(tensor);
  if (made_by.empty() || !std::ranges::all_of(made_by, &RecordedCall::is_complete)) return {};
  return std::make_optional<JudgedCall>(dump, std::move(made_by), merge(dump, tensor).tensor.whole(),
                                        worst_element(*f.metrics));
}

std::optional<LocalErrors::Judgement> LocalErrors::judge(Finding& f, const Pair& pair) {
  if (!f.metrics || pair.actual == nullptr || pair.reference == nullptr) {
    ++unjudged_.no_call;
    return {};
  }
  if (is_spent()) {
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
    const auto compared = compare(*actual, known->second);
    if (compared && is_within(*compared)) return judgement(*actual, {known->second, *compared});
  }
  const auto reference = recorded_call(sides_.reference, reference_calls_, *pair.reference, f);
  const auto variant = reference ? fitted_variant(*reference, key) : std::nullopt;
  const auto compared = variant ? compare(*actual, *variant) : std::nullopt;
  if (!compared) {
    ++(reference ? unjudged_.no_fit : unjudged_.no_call);
    return {};
  }
  if (!is_within(*compared)) {
    if (const auto other = variant_of_both(*actual, *reference, *variant, key))
      return judgement(*actual, *other);
    if (options_.cases != nullptr) options_.cases->add(f, *actual, *variant);
  }
  return judgement(*actual, {*variant, *compared});
}

// Attributes that the reference does not tell apart are no mistake: an epsilon beside large inputs.
std::optional<LocalErrors::Judged> LocalErrors::variant_of_both(const JudgedCall& actual,
                                                                const JudgedCall& reference,
                                                                const CallVariant& but, const Key& key) {
  for (const CallVariant& v : variants_of(actual.op())) {
    if (v.text == but.text || v.fp8 != but.fp8 || refused_variants_[key].contains(v.text)) continue;
    auto compared = fit(actual, v);
    if (compared && fit(reference, v)) return Judged{v, std::move(*compared), true};
  }
  return {};
}

// As declared, or in another way that is right, whichever is nearer.
std::optional<JudgedCall::Compared> LocalErrors::compare(const JudgedCall& call, const CallVariant& variant) {
  work_ += call.work();
  auto compared = call.compare(variant);
  if (!compared || is_within(*compared)) return compared;
  for (const Arithmetic& way : call.admissible_arithmetics(variant)) {
    work_ += call.work() * share_of_values;
    auto other = call.compare(variant, way);
    if (other && (is_within(*other) || other->ratio < compared->ratio)) compared = std::move(other);
    if (is_within(*compared)) return compared;
  }
  auto in_any = call.compare_in_any_blocks(variant);
  return in_any ? in_any : compared;
}

bool LocalErrors::is_within(const JudgedCall::Compared& compared) const {
  return options_.isolate ? compared.within() : compared.ratio <= 1;
}

Exemption::Kind LocalErrors::exemption_of(const Judged& judged) {
  if (judged.is_equivalent) return Exemption::Kind::equivalent_attribute;
  return judged.compared.in_any_blocks ? Exemption::Kind::order_of_blocks
                                       : Exemption::Kind::amplified_rounding;
}

LocalErrors::Judgement LocalErrors::judgement(const JudgedCall& actual, const Judged& judged) {
  const JudgedCall::Compared& c = judged.compared;
  const std::string name = fmt::format("{}{}", actual.op().name,
                                       judged.variant.text.empty() ? "" : " (" + judged.variant.text + ")");
  Judgement found{
      c.ratio, fmt::format("{} on its own recorded inputs: error/allowed {:.3g}", name, c.ratio), {}};
  found.exemption = exemption_of(judged);
  found.is_whole =
      !actual.is_sampled() && (is_float(c.actual.dtype()) || c.actual.values() == c.golden.values());
  if (!(c.ratio <= 1)) found.diagnoses = mistake_diagnoses(actual, judged.variant);
  if (!options_.isolate || is_within(c)) return found;
  if (c.ratio <= 1) {
    found.ratio = std::abs(c.scale->excess) / c.scale->allowed;
    found.how = fmt::format(
        "{} on its own recorded inputs: each element is within its bound (error/allowed {:.3g}), but as a "
        "whole "
        "it is off by {:.2g} of itself where roundings make no more than {:.2g}",
        name, c.ratio, c.scale->excess, c.scale->allowed);
    found.diagnoses.push_back({Cause::factor,
                               {.factor = 1 + c.scale->excess,
                                .uncertainty = c.scale->allowed,
                                .op = std::string(actual.op().name)},
                               c.ratio});
    return found;
  }
  if (found.diagnoses.empty()) found.diagnoses = value_diagnoses(c, actual);
  return found;
}

// Diagnoses by the sharpest comparison: the golden result of the same inputs, with each element within the
// bound of its rounding.
std::vector<Diagnosis> LocalErrors::value_diagnoses(const JudgedCall::Compared& c,
                                                    const JudgedCall& actual) const {
  if (!is_float(c.actual.dtype())) return {};
  std::vector<Diagnosis> found = diagnose(c.actual, c.golden, {{0, 0, c.allowed}, options_.sizes});
  for (Diagnosis& d : found) d.parameters.against = actual.op().name;
  return found;
}

std::optional<JudgedCall::Compared> LocalErrors::fit(const JudgedCall& call, const CallVariant& variant,
                                                     const Arithmetic& arithmetic) {
  if (is_spent()) return {};
  work_ += call.work() * share_of_values;
  if (!call.may_fit(variant, arithmetic)) return {};
  work_ += call.work();
  auto compared = call.compare(variant, arithmetic);
  if (compared && is_within(*compared)) return compared;
  if (arithmetic.inputs) return {};
  for (Arithmetic way : call.admissible_arithmetics(variant)) {
    way.sums = arithmetic.sums;
    work_ += call.work() * share_of_values;
    compared = call.compare(variant, way);
    if (compared && is_within(*compared)) return compared;
  }
  return {};
}

std::vector<CallVariant> LocalErrors::with_fitted_epsilon(const JudgedCall& call) {
  work_ += call.evaluations_to_bisect() * call.work() * share_of_values;
  return is_spent() ? std::vector<CallVariant>() : call.with_bisected();
}

// The attributes with which the reference's recording is right. Blocks that are not known prove no fp8: that
// other results have to.
std::optional<CallVariant> LocalErrors::fitted_variant(const JudgedCall& reference, const Key& key) {
  if (const auto known = known_variants_.find(key); known != known_variants_.end()) {
    if (fit(reference, known->second)) return known->second;
    const auto in_any = reference.compare_in_any_blocks(known->second);
    if (in_any && is_within(*in_any)) return known->second;
  }
  std::optional<Judged> found;
  for (const CallVariant& v : variants_of(reference.op())) {
    if (auto compared = fit(reference, v)) {
      found = {v, std::move(*compared)};
      break;
    }
    if (!is_spent()) refused_variants_[key].insert(v.text);
  }
  if (!found) found = first_fit(reference, with_fitted_epsilon(reference));
  if (!found && !is_spent()) found = first_fit(reference, reference.with_factor());
  if (!found && !is_spent()) found = first_fit(reference, reference.with_candidates());
  if (!found) return {};
  return known_variants_[key] = found->variant;
}

std::optional<LocalErrors::Judged> LocalErrors::first_fit(const JudgedCall& call,
                                                          const std::vector<CallVariant>& among) {
  for (const CallVariant& v : among) {
    if (auto compared = fit(call, v)) return Judged{v, std::move(*compared)};
  }
  return {};
}

// "micro-batches 0, 1, 2, 3 count 0, 0, 0, 1 times": where all count alike it is a factor.
std::vector<Diagnosis> LocalErrors::weight_diagnoses(const JudgedCall& actual, const CallVariant& right) {
  work_ += actual.work();
  const auto fit = actual.fitted_weights(right);
  if (!fit) return {};
  const auto [least, most] = std::ranges::minmax(fit->weights);
  if (most - least <= fit->uncertainty * std::abs(most)) return {};
  std::vector<double> counts;
  for (const double a : fit->weights) {
    const double whole = std::round(a);
    counts.push_back(std::abs(a - whole) <= fit->uncertainty ? std::abs(whole) : a);
  }
  return {{Cause::weights, {.micro_batches = fit->micro_batches, .counts = std::move(counts)}, fit->ratio}};
}

std::vector<Diagnosis> LocalErrors::mistake_diagnoses(const JudgedCall& actual, const CallVariant& right) {
  if (auto weighed = weight_diagnoses(actual, right); !weighed.empty()) return weighed;
  auto mistake = first_fit(actual, mistakes_for(actual.op(), right));
  if (!mistake) mistake = first_fit(actual, with_fitted_epsilon(actual));
  if (mistake)
    return {
        {Cause::attribute, other_attributes(actual.op(), mistake->variant, right), mistake->compared.ratio}};
  for (const Arithmetic& narrow : narrow_arithmetics()) {
    if (const auto compared = fit(actual, right, narrow))
      return {{narrow.inputs ? Cause::input_precision : Cause::accumulator_precision,
               {.dtype = narrow.inputs ? narrow.inputs : narrow.sums.accumulator,
                .op = std::string(actual.op().name),
                .how = describe(narrow)},
               compared->ratio}};
  }
  return {};
}

}  // namespace assay
