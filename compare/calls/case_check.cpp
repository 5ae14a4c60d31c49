#include "assay/compare/calls/case_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/measure/block_kernels.h"
#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/replicas.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/accumulator.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

// `t` with the NaN of `reference` where both hold one.
Tensor with_nans_of(const Tensor& t, const Tensor& reference) {
  std::vector<std::byte> bytes(t.bytes().begin(), t.bytes().end());
  const std::size_t size = size_of(t.dtype());
  for (std::int64_t i = 0; i < t.size(); ++i) {
    if (!std::isnan(t.value(i)) || !std::isnan(reference.value(i))) continue;
    const std::size_t at = static_cast<std::size_t>(i) * size;
    std::copy_n(reference.bytes().data() + at, size, bytes.data() + at);
  }
  return {t.dtype(), t.shape(), std::move(bytes)};
}

// float64 is what references are declared in: a kernel's outputs may be of any dtype then.
bool is_narrower(DType actual, DType declared) {
  return is_float(actual) && is_float(declared) && declared != DType::float64 &&
         unit_roundoff(actual) > unit_roundoff(declared);
}

std::string domain_text(const Domain& d) {
  const std::string range = fmt::format("{:g} <= value <= {:g}", d.low, d.high);
  return d.least > 0 ? fmt::format("{}, 0 or |value| >= {:g}", range, d.least) : range;
}

// The values of an input that lie outside of its domain, as half a sentence; "" if none does.
std::string extremes_of(const Arg& arg, const NamedTensor& input) {
  if (!is_float(input.tensor.dtype()) || arg.raw) return "";
  const Domain& d = arg.domain;
  std::int64_t outside = 0, first = -1;
  double example = 0;
  TensorSource(input.tensor).for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> values = window.values();
    if (count_inside(values, d.least, d.low, d.high) == window.size()) return;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (d.contains(values[i]) || outside++ > 0) continue;
      first = begin + static_cast<std::int64_t>(i);
      example = values[i];
    }
  });
  if (outside == 0) return "";
  return fmt::format("{} of the {} values of '{}' are outside of its domain ({}), first {} at {}", outside,
                     input.tensor.size(), input.name, domain_text(d),
                     format_value(input.tensor.dtype(), example),
                     to_string(unravel(first, input.tensor.shape())));
}

}  // namespace

CaseCheck::CaseCheck(const Case& c, const CheckOptions& options)
    : case_(c), options_(options), shapes_(shapes_of(c.inputs)) {
  if (!may_judge_rows(c, options)) golden();
  for (const NamedTensor& t : c.inputs) {
    const std::string extremes = extremes_of(input_arg(*c.op, t.name), t);
    if (!extremes.empty()) extremes_ += (extremes_.empty() ? "" : "; ") + extremes;
  }
}

const std::vector<NamedTensor>& CaseCheck::golden() {
  if (golden_.empty()) golden_ = compute_golden(*case_.op, case_.inputs, case_.attributes, options_.level);
  return golden_;
}

std::string CaseCheck::outputs_not_listed() {
  std::string names;
  for (const NamedTensor& t : golden()) {
    if (std::ranges::find(case_.outputs, t.name, &CaseOutput::name) != case_.outputs.end()) continue;
    names += (names.empty() ? "" : ", ") + t.name;
  }
  return names;
}

CallVariant CaseCheck::variant() const {
  CallVariant stated;
  stated.attributes = case_.attributes;
  stated.text = differences(*case_.op, stated, {});
  return stated;
}

// Its error bounds are computed once, of all outputs.
Call& CaseCheck::call_on(const Device& device, const std::string& output, const Tensor& actual) {
  const auto [at, is_new] =
      calls_.try_emplace({output, device}, *case_.op, case_.inputs, output, actual, device);
  if (!is_new) {
    at->second.take_result(actual);
    return at->second;
  }
  std::vector<NamedTensor>& bounds = bounds_[device];
  if (bounds.empty()) bounds = compute_bound(*case_.op, case_.inputs, case_.attributes, device.error_model());
  at->second.take_device_errors(variant(), output_named(bounds, output).values());
  if (options_.level == Level::fp64) at->second.take_golden(variant(), output_named(golden(), output));
  return at->second;
}

const Call& CaseCheck::call(const CaseOutput& output, const TensorSource& actual) {
  return call_on(device_of(output, actual.dtype()), output.name, actual.whole());
}

// How far the golden values themselves may be from the real ones; empty: as far as float64 is.
const std::vector<double>& CaseCheck::golden_errors(const std::string& output, const Tensor& golden) {
  const auto [at, is_new] = golden_errors_.try_emplace(output);
  if (!is_new || options_.level == Level::fp64) return at->second;
  if (options_.level == Level::certified) {
    // Correctly rounded to float32: half a unit in the last place.
    at->second = golden.values();
    for (double& e : at->second) e = 0x1p-24 * std::abs(e) + 0x1p-150;
  } else {
    const auto bound = compute_bound(*case_.op, case_.inputs, case_.attributes, float32_device, output);
    at->second = output_named(bound, output).values();
  }
  return at->second;
}

// What an element may be off: the kernel's own error bound, the golden value's, and the final store to a
// narrow dtype.
std::vector<double> CaseCheck::allowed_errors(const std::string& output, const Tensor& golden,
                                              const Tensor& actual, const Device& device) {
  return call_on(device, output, actual).allowed(variant(), golden, golden_errors(output, golden));
}

// Golden in float32 arithmetic, stored in the dtype of the result: what a plain correct kernel has.
const Tensor& CaseCheck::baseline(const std::string& output, DType stored) {
  if (less_precise_.empty()) {
    less_precise_ = compute_golden(*case_.op, case_.inputs, case_.attributes, Level::report);
  }
  const auto [at, is_new] = baselines_.try_emplace({output, stored});
  if (is_new) {
    const Tensor& tensor = output_named(less_precise_, output);
    at->second = Tensor::from_values(stored, tensor.shape(), tensor.values());
  }
  return at->second;
}

std::string CaseCheck::bound_source(const Device& device, DType stored) const {
  return fmt::format(
      "error bound of {} in {} arithmetic{}{}{}", case_.op->name, name(device.arithmetic),
      device.accumulator.empty() ? "" : ", accumulator " + accumulator_in_words(device.accumulator),
      device.intermediate ? fmt::format(", intermediate results in {}", name(*device.intermediate)) : "",
      device.arithmetic != stored ? fmt::format(", stored as {}", name(stored)) : "");
}

void CaseCheck::judge_policy(Finding& f, const CaseOutput& output, const TensorSource& actual,
                             const Tensor& golden, Expectation e) {
  std::vector<double> allowed;
  const bool comparable = is_float(actual.dtype()) && actual.shape() == golden.shape();
  const std::string_view op = case_.op->name;
  if (e.policy->rule == Rule::derived && comparable) {
    const Device device = device_of(output, actual.dtype());
    if (output_arg(*case_.op, output.name).exact == Exact::value) {
      allowed.assign(static_cast<std::size_t>(golden.size()), 0);
      e.bound_source = fmt::format("derived: {} rounds nothing, every value equal", op);
    } else if (const auto sums = in_stated_order(output, actual.dtype())) {
      allowed.assign(static_cast<std::size_t>(golden.size()), 0);
      e.bound = allowed;
      e.bound_source = fmt::format("derived: every bit of {} with the accumulator {}", op,
                                   accumulator_in_words(device.accumulator));
      judge(f, actual, *sums, e);
      if (f.verdict == Verdict::failed) note_other_order(f, output, actual);
      return;
    } else {
      allowed = allowed_errors(output.name, golden, actual.whole(), device);
      e.bound_source = "derived: " + bound_source(device, actual.dtype());
    }
    e.bound = allowed;
  } else if (e.policy->rule == Rule::baseline && comparable && actual.dtype() != DType::float64) {
    e.baseline = &baseline(output.name, actual.dtype());
  }
  judge(f, actual, golden, e);
}

// A common factor, or an attribute, that is off by less than the bound of each element.
void CaseCheck::judge_whole(Finding& f, const CaseOutput& output, const TensorSource& actual) {
  const bool by_bound = f.verdict == Verdict::passed && options_.policies.front().rule == Rule::derived;
  if (!by_bound || !is_float(actual.dtype()) || decides_bits(output, actual.dtype())) return;
  const Device device = device_of(output, actual.dtype());
  // A step that all elements share may be rounded as coarsely as results between steps are kept.
  if (!options_.whole && device.intermediate) return;
  const auto off = off_as_a_whole(output, actual);
  if (!off) return;
  const std::string text = fmt::format("each element is within its bound, but {}", describe(*off));
  // Elements that were stored narrow are of few numbers, which were rounded alike.
  if (!options_.whole && unit_roundoff(actual.dtype()) > unit_roundoff(device.arithmetic)) {
    f.notes.push_back(text + "; with --whole that fails");
    return;
  }
  f.verdict = Verdict::failed;
  f.ratio = std::abs(off->excess) / off->allowed;
  f.reason = text;
}

// The report's check for extreme inputs: what such inputs lead to is no evidence, good or bad.
void CaseCheck::distrust_extremes(Finding& f) const {
  const bool by_tolerance = f.verdict == Verdict::passed || f.verdict == Verdict::failed;
  if (extremes_.empty() || !by_tolerance) return;
  f.reason = fmt::format("{}{}; a correct kernel may lose every digit there. 'assay generate' stays inside",
                         f.verdict == Verdict::failed ? f.reason + "; but " : "", extremes_);
  f.verdict = Verdict::mistrusted;
}

// How an output of this dtype is judged, but for the policy.
Expectation CaseCheck::expectation_of(Finding& f, const CaseOutput& output, DType actual) const {
  Expectation e;
  e.row_dtype = actual;
  e.count = accumulation_count(*case_.op, output.name, shapes_, case_.attributes);
  e.threads = options_.threads;
  f.count_source = fmt::format("{} {} of the inputs' shapes", case_.op->name, output.name);
  return e;
}

void CaseCheck::judge_output(Finding& f, const CaseOutput& output, const TensorSource& actual,
                             const WithinRows& within) const {
  Expectation e = expectation_of(f, output, actual.dtype());
  e.policy = &options_.policies.front();
  e.measured = &within.measured;
  e.bound_source =
      "derived: a part of the " + bound_source(device_of(output, actual.dtype()), actual.dtype());
  judge(f, actual, within.golden, e);
  distrust_extremes(f);
}

void CaseCheck::judge_output(Finding& f, const CaseOutput& output, const Merged& merged, bool map_errors) {
  const Tensor& golden = output_named(this->golden(), output.name);
  const Arg& arg = output_arg(*case_.op, output.name);
  const TensorSource actual = arg.raw ? bits_of(merged.tensor.whole()) : merged.tensor;
  if (is_narrower(actual.dtype(), output.dtype)) {
    f.actual_dtype = actual.dtype();
    f.reference_dtype = output.dtype;
    f.actual_shape = f.reference_shape = actual.shape();
    f.verdict = Verdict::not_comparable;
    f.rule = "shape and dtype";
    f.reason = fmt::format("{}; case.json declares {}", name(actual.dtype()), name(output.dtype));
    return;
  }
  Expectation e = expectation_of(f, output, actual.dtype());
  if (arg.exact == Exact::bits) {
    e.promises_bits = true;
    e.bits_reason = fmt::format("{} copies: every bit equal", case_.op->name);
  }
  // Exactness can only be promised in the dtype of the result; golden's extra digits are zeros then.
  // Integers are moved as values: into their dtype if they all are of it.
  Tensor reference = golden;
  if (arg.exact != Exact::no) {
    reference = Tensor::from_values(actual.dtype(), golden.shape(), golden.values());
    if (!is_float(actual.dtype()) && reference.values() != golden.values()) reference = golden;
  } else if (is_float(actual.dtype()) && !format_of(actual.dtype()).has_nan) {
    reference = Tensor(golden.shape(), std::span<const double>(saturated(actual.dtype(), golden.values())));
  }
  // A conversion promises a NaN, but not its payload.
  const bool converts =
      case_.attributes.has("to") || complete_attributes(*case_.op, case_.attributes).has("to");
  const TensorSource judged =
      converts && e.promises_bits && is_float(actual.dtype()) && actual.shape() == reference.shape()
          ? with_nans_of(actual.whole(), reference)
          : actual;
  for (std::size_t i = 0; i < options_.policies.size(); ++i) {
    e.policy = &options_.policies[i];
    e.map_errors = map_errors && i == 0;
    Finding other;
    Finding& into = i == 0 ? f : other;
    const bool bitwise = e.policy->rule == Rule::bitwise && is_float(actual.dtype());
    judge_policy(
        into, output, judged,
        bitwise ? Tensor::from_values(actual.dtype(), reference.shape(), reference.values()) : reference, e);
    if (arg.exact == Exact::no && is_float(actual.dtype())) distrust_extremes(into);
    if (i > 0) {
      f.others.push_back({e.policy->name, other.verdict, other.ratio});
      continue;
    }
    if (arg.exact == Exact::no) judge_whole(f, output, actual);
    if (f.verdict == Verdict::failed) judge_ties(f, output, actual);
    judge_replicas(f, merged, nullptr, reference, e);
  }
}

}  // namespace assay
