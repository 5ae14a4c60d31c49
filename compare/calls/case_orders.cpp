// Orders: that in which a device adds, and those of equal elements.
#include <fmt/format.h>

#include "assay/compare/calls/case_check.h"
#include "assay/golden/accumulator.h"
#include "assay/golden/sum_order.h"
#include "assay/golden/summation.h"
#include "assay/operators/engine/ties.h"

namespace assay {

// An order that was found in a kernel is not that of its gradients, which others compute.
Device CaseCheck::device_of(const CaseOutput& output, DType result) const {
  Device device = Device::of(result);
  device.accumulator = options_.accumulator;
  if (output_arg(*case_.op, output.name).role != Role::output)
    device.accumulator = accumulator_in_any_order(device.accumulator);
  device.intermediate = options_.intermediate;
  return device;
}

// The accumulator that the options state, where it decides every bit of the output: its additions are IEEE
// 754's, in a known order.
std::optional<Accumulator> CaseCheck::decides_bits(const CaseOutput& output, DType stored) const {
  const bool is_sum = case_.op->is_only_sums && output_arg(*case_.op, output.name).role == Role::output;
  if (!is_sum || options_.accumulator.empty() || options_.level != Level::fp64 || !is_float(stored))
    return {};
  Accumulator a = parse_accumulator(options_.accumulator);
  const std::int64_t terms = accumulation_count(*case_.op, output.name, shapes_, case_.attributes);
  if (!a.bitwise || a.terms_in_order->terms() != terms) return {};
  return a;
}

std::optional<Tensor> CaseCheck::in_stated_order(const CaseOutput& output, DType stored) const {
  const auto a = decides_bits(output, stored);
  if (!a) return {};
  const SummationScope scope({.accumulator = a->dtype, .order = a->terms_in_order, .fma = a->fma});
  const auto outputs = compute_golden(*case_.op, case_.inputs, case_.attributes, Level::fp64, output.name);
  const Tensor& sums = output_named(outputs, output.name);
  return Tensor::from_values(stored, sums.shape(), sums.values());
}

// Of a failure by every bit: whether the same accumulator in any order has it.
void CaseCheck::note_other_order(Finding& f, const CaseOutput& output, const TensorSource& actual) {
  Device any = device_of(output, actual.dtype());
  any.accumulator = accumulator_in_any_order(options_.accumulator);
  if (is_within(output, actual, any))
    f.notes.push_back(fmt::format(
        "within the bound of --accumulator {}: the kernel adds in another order than the stated one",
        any.accumulator));
}

// Of equal elements any may come first.
void CaseCheck::judge_ties(Finding& f, const CaseOutput& output, const TensorSource& actual) const {
  if (!is_legal_tie(*case_.op, output.name, actual.whole(), case_.inputs, case_.attributes)) return;
  f.notes.push_back(fmt::format("a legal tie: {}; equal elements of x are in another order", f.reason));
  f.verdict = Verdict::passed;
  f.reason.clear();
  f.ratio = 0;
  f.rule = f.row = "equal elements in any order";
}

}  // namespace assay
