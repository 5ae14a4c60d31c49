// Other devices on which an output that failed would be right, and what one that passed is off by as a whole.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/case_check.h"
#include "assay/compare/measure/measure.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// What a kernel may have that is correct on its own device, from the strictest to the loosest.
constexpr std::string_view other_devices[] = {"float32,worst", "hopper",  "ampere",  "hopper-fp8,promote=128",
                                              "hopper-fp8",    "float16", "bfloat16"};

// In terms of sums, of which bounds take 1.5e7 a second or more: a quarter of a second. Statistics that the
// elements of a row share are counted for each of them.
constexpr double work_of_a_hypothesis = 0x1p22;

// Whether errors are spread as those of roundings: none is `improbable` times the root mean square of all, in
// units of what each may be.
bool is_spread(const Call::Compared& c) {
  const std::vector<double> actual = c.actual.values(), golden = c.golden.values();
  double squares = 0, worst = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!(c.allowed[i] > 0)) continue;
    const double ratio = std::abs(actual[i] - golden[i]) / c.allowed[i];
    squares += ratio * ratio;
    worst = std::max(worst, ratio);
  }
  return worst <= improbable * std::sqrt(squares / static_cast<double>(actual.size()));
}

// A bound that allows as much as there is, in the norm, lets zeros and much else through.
bool tells_from_zeros(std::span<const double> golden, std::span<const double> allowed) {
  double values = 0, errors = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    if (!std::isfinite(golden[i])) continue;
    values += golden[i] * golden[i];
    errors += allowed[i] * allowed[i];
  }
  return errors < values || (values == 0 && errors == 0);
}

}  // namespace

bool CaseCheck::is_within(const CaseOutput& output, const TensorSource& actual, const Device& device) {
  const Tensor& golden = output_named(this->golden(), output.name);
  const std::vector<double> allowed = allowed_errors(output.name, golden, actual.whole(), device);
  return measure(actual, golden, {0, 0, allowed}, options_.threads).over == 0;
}

std::optional<ScaleError> CaseCheck::off_as_a_whole(const CaseOutput& output, const TensorSource& actual) {
  const Call& of_output = call(output, actual);
  const auto compared = of_output.compare(variant());
  if (!compared) return {};
  if (compared->scale && !compared->scale->within()) return compared->scale;
  const bool is_narrow = unit_roundoff(actual.dtype()) > unit_roundoff(of_output.device().arithmetic);
  if (is_narrow || of_output.device().intermediate) return {};
  return of_output.scale_of_attributes(variant(), *compared);
}

Call CaseCheck::rows_on(const Device& device, const Finding& f, const CaseOutput& output,
                        const TensorSource& actual) {
  return Call(*case_.op, case_.inputs, output.name, actual.whole(), device)
      .in_some_rows(work_of_a_hypothesis, f.metrics ? worst_element(*f.metrics) : 0);
}

Call CaseCheck::some_rows(const Finding& f, const CaseOutput& output, const TensorSource& actual) {
  return rows_on(device_of(output, actual.dtype()), f, output, actual);
}

bool CaseCheck::may_be_rounding(const Finding& f, const CaseOutput& output,
                                const TensorSource& actual) const {
  const Device device = device_of(output, actual.dtype());
  return is_float(actual.dtype()) && output_arg(*case_.op, output.name).exact == Exact::no &&
         f.verdict == Verdict::failed && options_.policies.front().rule == Rule::derived && f.metrics &&
         f.metrics->special_mismatch == 0 && device.accumulator.empty() &&
         device.arithmetic == DType::float32;
}

bool CaseCheck::hint_at_intermediate(Finding& f, const CaseOutput& output, const TensorSource& actual) {
  Device storing = device_of(output, actual.dtype());
  if (!may_be_rounding(f, output, actual) || storing.intermediate || actual.dtype() == storing.arithmetic)
    return false;
  storing.intermediate = actual.dtype();
  const Call rows = rows_on(storing, f, output, actual);
  const auto in_rows = rows.ratio(variant());
  if (!in_rows || *in_rows > 1 || !rows.keeps_results(variant())) return false;
  if (!is_within(output, actual, storing)) return false;
  f.notes.push_back(fmt::format(
      "within the bound of --intermediate {0}: state it if the kernel keeps intermediate results in {0}",
      name(actual.dtype())));
  return true;
}

bool CaseCheck::hint_at_accumulator(Finding& f, const CaseOutput& output, const TensorSource& actual) {
  if (!may_be_rounding(f, output, actual) || f.count.value_or(0) < 2) return false;  // nothing is added up
  // A bound that covers what has next to no digit in common with the golden values says nothing.
  if (!some_rows(f, output, actual).may_fit(variant())) return false;
  for (const std::string_view accumulator : other_devices) {
    Device other = device_of(output, actual.dtype());
    other.accumulator = accumulator;
    const auto in_rows = rows_on(other, f, output, actual).compare(variant());
    if (!in_rows || in_rows->ratio > 1 || !is_spread(*in_rows)) continue;
    if (!tells_from_zeros(in_rows->golden.values(), in_rows->allowed)) continue;
    if (!is_within(output, actual, other)) continue;
    f.notes.push_back(fmt::format(
        "within the bound of --accumulator {}: state that only if it is how the device adds", accumulator));
    return true;
  }
  return false;
}

}  // namespace assay
