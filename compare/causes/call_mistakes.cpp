#include "assay/compare/causes/call_mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/weighted_columns.h"
#include "assay/compare/causes/values/diagnosis.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// In terms of sums, of which bounds take 1.5e7 a second or more: a minute at most, for hypotheses of a
// quarter of a second each.
constexpr double most_work_of_an_output = 0x1p30;

// Diagnoses by the sharpest comparison: the golden result of the same inputs, with each element within the
// bound of its rounding.
std::vector<Diagnosis> value_diagnoses(const Call::Compared& c, const Call& actual,
                                       const std::vector<KnownSize>& sizes) {
  if (!is_float(c.actual.dtype())) return {};
  std::vector<Diagnosis> found = diagnose(c.actual, c.golden, {{0, 0, c.allowed}, sizes});
  for (Diagnosis& d : found) d.parameters.against = actual.op().name;
  return found;
}

// "micro-batches 0, 1, 2, 3 count 0, 0, 0, 1 times": where all count alike it is a factor.
std::vector<Diagnosis> weight_diagnoses(CallJudge& judge, const Call& actual, const CallVariant& right) {
  const auto fit = judge.fitted_weights(actual, right);
  if (!fit) return {};
  auto counts = counts_of(fit->weights, fit->uncertainty);
  if (!counts) return {};
  return {{Cause::weights, {.micro_batches = fit->micro_batches, .counts = std::move(*counts)}, fit->ratio}};
}

// A factor of all elements explains them as well.
bool is_one_factor(const Call::Compared& c) {
  if (!c.scale || !c.scale->attribute.empty()) return false;
  const std::vector<double> actual = c.actual.values(), golden = c.golden.values();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - (1 + c.scale->excess) * golden[i]) > c.allowed[i]) return false;
  }
  return true;
}

// A number that no row lists, solved from the result: the cheaper hypothesis is a factor.
std::optional<CallJudge::Fit> solved(CallJudge& judge, const Call& call, const CallVariant& right,
                                     const Call::Compared& c) {
  if (is_one_factor(c)) return {};
  auto fit = judge.first_fit(call, judge.with_bisected(call, right));
  if (fit && proves(evidence(c, fit->compared), bits_of_a_number)) return fit;
  return {};
}

// What takes the same operands: another activation, a norm of another kind.
std::vector<Diagnosis> operation_mistakes(CallJudge& judge, const Call& call, const Call::Compared& c) {
  if (!is_float(c.actual.dtype())) return {};
  for (const Operator* other : operators()) {
    const auto as_other = call.by(*other);
    if (!as_other) continue;
    std::vector<CallVariant> variants = mistakes_for(*other, {});
    variants.insert(variants.begin(), CallVariant{});
    const auto fit = judge.first_fit(*as_other, variants);
    if (!fit || !proves(evidence(c, fit->compared), bits_of_a_number)) continue;
    const std::string with = fit->variant.text.empty() ? "" : fmt::format(" ({})", fit->variant.text);
    return {{Cause::operation,
             {.op = fmt::format("{}{}", other->name, with), .reference_op = std::string(call.op().name)},
             fit->compared.ratio}};
  }
  return {};
}

std::vector<Diagnosis> attribute_mistakes(CallJudge& judge, const Call& call, const CallVariant& right,
                                          const Call::Compared& c) {
  if (auto weighed = weight_diagnoses(judge, call, right); !weighed.empty()) return weighed;
  auto mistake = judge.first_fit(call, mistakes_for(call.op(), right));
  if (!mistake) mistake = judge.first_fit(call, call.with_other_values(right));
  if (!mistake) {
    if (auto other = operation_mistakes(judge, call, c); !other.empty()) return other;
    mistake = solved(judge, call, right, c);
  }
  if (!mistake) return {};
  return {{Cause::attribute, other_attributes(call.op(), mistake->variant, right), mistake->compared.ratio}};
}

std::vector<Diagnosis> arithmetic_mistakes(CallJudge& judge, const Call& call, const CallVariant& right) {
  for (const Arithmetic& narrow : narrow_arithmetics()) {
    if (const auto compared = judge.fit(call, right, narrow))
      return {{narrow.inputs ? Cause::input_precision : Cause::accumulator_precision,
               {.dtype = narrow.inputs ? narrow.inputs : narrow.sums.accumulator,
                .op = std::string(call.op().name),
                .how = describe(narrow)},
               compared->ratio}};
  }
  return {};
}

// Of a call none of whose attributes is another.
std::vector<Diagnosis> other_mistakes(CallJudge& judge, const Call& call, const CallVariant& right,
                                      const Call::Compared& c, const std::vector<KnownSize>& sizes,
                                      const RecordedOperands& recorded) {
  std::vector<Diagnosis> found = arithmetic_mistakes(judge, call, right);
  if (found.empty()) found = operand_mistakes(judge, call, right, c, recorded);
  if (found.empty() && judge.standard() == CallJudge::Standard::whole)
    found = value_diagnoses(c, call, sizes);
  return found;
}

// Nothing but zeros, or what was given: no arithmetic is a cheaper hypothesis.
std::vector<Diagnosis> without_arithmetic(const Call& call, const Call::Compared& c) {
  if (!is_float(c.actual.dtype()) || std::ranges::any_of(c.actual.values(), [](double a) { return a != 0; }))
    return left_out(call, c);
  return {{Cause::zeros, {.against = std::string(call.op().name)}, 0}};
}

// Each element is within its bound: what is left is the factor of all, or of an attribute.
Diagnosis factor_of_all(CallJudge& judge, const Call& call, const CallVariant& right,
                        const Call::Compared& c) {
  if (!c.scale->attribute.empty()) {
    if (const auto other = judge.first_fit(call, judge.with_bisected(call, right)))
      return {Cause::attribute, other_attributes(call.op(), other->variant, right), other->compared.ratio};
  }
  return {Cause::factor,
          {.factor = 1 + c.scale->excess,
           .uncertainty = c.scale->allowed,
           .op = std::string(call.op().name),
           .how = std::string(c.scale->attribute)},
          c.ratio};
}

}  // namespace

std::vector<Diagnosis> explain_call(CallJudge& judge, const Call& call, const CallVariant& right,
                                    const Call::Compared& c, const std::vector<KnownSize>& sizes,
                                    const RecordedOperands& recorded) {
  if (judge.is_within(c)) return {};
  if (c.ratio <= 1) return {factor_of_all(judge, call, right, c)};
  if (auto simple = without_arithmetic(call, c); !simple.empty()) return simple;
  std::vector<Diagnosis> found = attribute_mistakes(judge, call, right, c);
  return found.empty() ? other_mistakes(judge, call, right, c, sizes, recorded) : found;
}

void explain_output(Finding& f, CaseCheck& check, const CaseOutput& output, const TensorSource& actual) {
  if (f.verdict != Verdict::failed) return;
  CallJudge judge(CallJudge::Standard::whole, most_work_of_an_output);
  const Call call = check.some_rows(f, output, actual);
  const CallVariant right = check.variant();
  const auto compared = judge.compare(call, right);
  if (!compared) return;
  if (compared->ratio <= 1) {  // the row of the worst element is there: all are within their bounds
    const Call& all = check.call(output, actual);
    auto whole = all.compare(right);
    if (!whole) return;
    whole->scale = check.off_as_a_whole(output, actual);
    if (!whole->scale) return;
    f.diagnoses = attribute_mistakes(judge, all, right, *whole);
    if (f.diagnoses.empty()) f.diagnoses = {factor_of_all(judge, all, right, *whole)};
    return;
  }
  f.diagnoses = without_arithmetic(call, *compared);
  if (f.diagnoses.empty()) f.diagnoses = attribute_mistakes(judge, call, right, *compared);
  // Right on another device, before what a device should not do.
  if (!f.diagnoses.empty() || check.hint_at_intermediate(f, output, actual)) return;
  f.diagnoses = other_mistakes(judge, call, right, *compared, {}, {});
  if (f.diagnoses.empty() || f.diagnoses.front().cause == Cause::accumulator_precision)
    check.hint_at_accumulator(f, output, actual);
}

}  // namespace assay
