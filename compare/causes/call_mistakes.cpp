#include "assay/compare/causes/call_mistakes.h"

#include <algorithm>
#include <cmath>

#include "assay/compare/causes/values/diagnosis.h"
#include "assay/compare/result/metrics.h"

namespace assay {
namespace {

// In terms of sums, of which bounds take 1.5e7 a second or more: of one hypothesis about an output a quarter
// of a second, of all a minute. Statistics that the elements of a row share are counted for each of them.
constexpr double work_of_a_hypothesis = 0x1p22, most_work_of_an_output = 0x1p30;

// A flag is 0 or 1.
std::optional<double> number_of(const AttributeValue& v) {
  if (const bool* flag = std::get_if<bool>(&v)) return *flag ? 1 : 0;
  const double* number = std::get_if<double>(&v);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

// What a call has in the place of the right attributes; of one alone its name and both numbers, too.
CauseParameters other_attributes(const Operator& op, const CallVariant& actual, const CallVariant& right) {
  CauseParameters p = {.op = std::string(op.name),
                       .actual_attributes = differences(op, actual, right),
                       .reference_attributes = differences(op, right, actual)};
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
  const auto [least, most] = std::ranges::minmax(fit->weights);
  if (most - least <= fit->uncertainty * std::abs(most)) return {};
  std::vector<double> counts;
  for (const double a : fit->weights) {
    const double whole = std::round(a);
    counts.push_back(std::abs(a - whole) <= fit->uncertainty ? std::abs(whole) : a);
  }
  return {{Cause::weights, {.micro_batches = fit->micro_batches, .counts = std::move(counts)}, fit->ratio}};
}

std::vector<Diagnosis> mistake_diagnoses(CallJudge& judge, const Call& actual, const CallVariant& right) {
  if (auto weighed = weight_diagnoses(judge, actual, right); !weighed.empty()) return weighed;
  auto mistake = judge.first_fit(actual, mistakes_for(actual.op(), right));
  if (!mistake) mistake = judge.first_fit(actual, judge.with_bisected(actual, right));
  if (mistake)
    return {
        {Cause::attribute, other_attributes(actual.op(), mistake->variant, right), mistake->compared.ratio}};
  for (const Arithmetic& narrow : narrow_arithmetics()) {
    if (const auto compared = judge.fit(actual, right, narrow))
      return {{narrow.inputs ? Cause::input_precision : Cause::accumulator_precision,
               {.dtype = narrow.inputs ? narrow.inputs : narrow.sums.accumulator,
                .op = std::string(actual.op().name),
                .how = describe(narrow)},
               compared->ratio}};
  }
  return {};
}

}  // namespace

std::vector<Diagnosis> explain_call(CallJudge& judge, const Call& call, const CallVariant& right,
                                    const Call::Compared& c, const std::vector<KnownSize>& sizes) {
  if (judge.is_within(c)) return {};
  // Each element is within its bound: what is left is the factor of all.
  if (c.ratio <= 1)
    return {
        {Cause::factor,
         {.factor = 1 + c.scale->excess, .uncertainty = c.scale->allowed, .op = std::string(call.op().name)},
         c.ratio}};
  std::vector<Diagnosis> found = mistake_diagnoses(judge, call, right);
  if (found.empty() && judge.standard() == CallJudge::Standard::whole)
    found = value_diagnoses(c, call, sizes);
  return found;
}

void explain_output(Finding& f, CaseCheck& check, const CaseOutput& output, const TensorSource& actual) {
  if (f.verdict != Verdict::failed || check.hint_at_intermediate(f, output, actual)) return;
  CallJudge judge(CallJudge::Standard::whole, most_work_of_an_output);
  const Call call = check.call(output, actual)
                        .in_some_rows(work_of_a_hypothesis, f.metrics ? worst_element(*f.metrics) : 0);
  const CallVariant right = check.variant();
  if (const auto compared = judge.compare(call, right))
    f.diagnoses = explain_call(judge, call, right, *compared, {});
  if (f.diagnoses.empty() || f.diagnoses.front().cause == Cause::accumulator_precision)
    check.hint_at_accumulator(f, output, actual);
}

}  // namespace assay
