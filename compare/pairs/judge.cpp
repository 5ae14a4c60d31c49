#include "assay/compare/pairs/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/measure/measure.h"
#include "assay/compare/measure/ordinals.h"
#include "assay/compare/pairs/baseline.h"
#include "assay/compare/pairs/map_errors.h"
#include "assay/compare/pairs/trust.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

namespace assay {
namespace {

// Share of the elements whose error has one sign, from which on the report mentions it. Not a verdict:
// elements that share a divisor (softmax, norms) err to one side together in correct kernels.
constexpr double notable_balance = 0.95;
constexpr std::int64_t notable_balance_elements = 64;

std::string at(const Finding& f, std::int64_t position) {
  return to_string(unravel(position, f.actual_shape));
}

std::string exact_text(const TensorSource& t, std::int64_t position) {
  Integer value = integer_at(t.dtype(), t.window(position, 1).bytes(), 0);
  const bool negative = value < 0;
  return (negative ? "-" : "") + fmt::format("{}", static_cast<std::uint64_t>(negative ? -value : value));
}

void note_worst(Finding& f, const TensorSource& actual, const TensorSource& reference) {
  const std::int64_t position = worst_element(*f.metrics);
  if (position < 0) return;
  f.actual_value = actual.value(position);
  f.reference_value = reference.value(position);
  const bool has_all_digits = std::max(std::abs(f.actual_value), std::abs(f.reference_value)) < 0x1p53;
  if (is_float(actual.dtype()) || has_all_digits) return;
  f.notes.push_back(fmt::format("exactly: actual {}, reference {}", exact_text(actual, position),
                                exact_text(reference, position)));
}

// An infinity that the dtype forces passes without a tolerance; the report says so.
void note_overflow(Finding& f) {
  if (f.metrics->overflowed == 0) return;
  f.notes.push_back(
      fmt::format("{} elements of the reference are beyond {}: the infinities they round to pass",
                  f.metrics->overflowed, name(f.actual_dtype)));
}

// Whether the pair may be compared at all.
bool comparable(Finding& f) {
  if (f.actual_shape != f.reference_shape) {
    f.reason = fmt::format("shape {} against {}", to_string(f.actual_shape), to_string(f.reference_shape));
  } else if (is_float(f.actual_dtype) != is_float(f.reference_dtype)) {
    f.reason = fmt::format("{} against {}", name(f.actual_dtype), name(f.reference_dtype));
  } else {
    return true;
  }
  f.verdict = Verdict::not_comparable;
  f.rule = "shape and kind of dtype";
  return false;
}

void judge_bits(Finding& f, const TensorSource& actual, const TensorSource& reference, std::string rule,
                const Expectation& e) {
  f.metrics = measure(actual, reference, {}, e.threads, e.exact_sums);
  f.rule = std::move(rule);
  const Metrics& m = *f.metrics;
  note_worst(f, actual, reference);
  f.ratio = m.different_bits == 0 ? 0 : std::numeric_limits<double>::infinity();
  if (m.different_bits == 0) return;
  f.verdict = Verdict::failed;
  f.reason = fmt::format("{} of {} elements differ", m.different_bits, m.elements);
}

// False if the pattern of NaN and Inf differs: that decides before any tolerance. note_worst() has looked up
// the first.
bool judge_special(Finding& f) {
  const Metrics& m = *f.metrics;
  if (m.special_mismatch == 0) return true;
  f.verdict = Verdict::failed;
  f.reason =
      fmt::format("NaN or Inf differ in {} of {} elements, first at {}: {} against {}", m.special_mismatch,
                  m.elements, at(f, m.special_mismatch_at), format_value(f.actual_dtype, f.actual_value),
                  format_value(f.reference_dtype, f.reference_value));
  return false;
}

void judge_outside(Finding& f) {
  f.verdict = Verdict::failed;
  f.reason = fmt::format("{} of {} elements outside, error/allowed {:.3g}", f.metrics->over,
                         f.metrics->elements, f.ratio);
}

bool measure_row(Finding& f, const TensorSource& actual, const TensorSource& reference, const Row& row,
                 const Expectation& e) {
  f.metrics = measure(actual, reference, {row.atol, row.rtol, {}}, e.threads, e.exact_sums);
  f.atol = row.atol;
  f.rtol = row.rtol;
  f.ratio = f.metrics->worst_ratio;
  f.required = row.atol == row.rtol && f.metrics->special_mismatch == 0
                   ? f.ratio * row.atol
                   : std::numeric_limits<double>::quiet_NaN();
  return f.metrics->over == 0;
}

void judge_table(Finding& f, const TensorSource& actual, const TensorSource& reference,
                 const Expectation& e) {
  const Policy& policy = *e.policy;
  const auto rows = policy.rows_of(e.row_dtype);
  if (rows.empty()) {
    f.metrics = measure(actual, reference, {}, e.threads, e.exact_sums);
    note_worst(f, actual, reference);
    const std::string no_row = no_row_text(e);
    f.rule = f.metrics->different_bits == 0 ? "every bit equal; " + no_row : no_row;
    if (f.metrics->different_bits == 0) return;
    f.verdict = Verdict::no_rule;
    f.reason = no_row + "; add a [[tolerance]] rule";
    return;
  }
  const Row* row = deciding_row(e);
  if (row == nullptr) {
    f.verdict = Verdict::no_rule;
    f.rule = f.reason = no_row_text(e);
    return;
  }
  const bool within = measure_row(f, actual, reference, *row, e);
  f.rule = rule_text(e, *row);
  f.row = to_string(policy, *row);
  note_worst(f, actual, reference);
  if (!judge_special(f)) return;
  if (!judge_finite(f)) return;
  if (within) return judge_row_trust(f, actual, reference, *row);
  judge_outside(f);
  if (e.count) return;
  // Fails at the strictest row; a larger count, if it were known, might still allow it.
  for (const Row& looser : rows.subspan(1)) {
    // With one number per row all limits grow alike, and the ratio that was measured decides; else measure
    // again.
    const bool grow_alike = row->atol == row->rtol && looser.atol == looser.rtol;
    const bool passes = grow_alike
                            ? f.ratio * row->atol <= looser.atol
                            : measure(actual, reference, {looser.atol, looser.rtol, {}}, e.threads).over == 0;
    if (!passes) continue;
    f.verdict = Verdict::no_rule;
    f.reason = count_needed(looser);
    return;
  }
}

BoundTrust trust_of(const TensorSource& actual, const TensorSource& reference,
                    std::span<const double> bound) {
  BoundTrust trust;
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::int64_t size = window.size();
    trust.add({window.values(), reference.window(begin, size).values(),
               bound.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size))});
  });
  return trust;
}

void judge_bound(Finding& f, const TensorSource& actual, const TensorSource& reference,
                 const Expectation& e) {
  f.metrics = e.measured != nullptr ? e.measured->metrics
                                    : measure(actual, reference, {0, 0, e.bound}, e.threads, e.exact_sums);
  f.ratio = f.metrics->worst_ratio;
  f.row = e.bound_source;
  f.rule = f.row + (e.count ? fmt::format(" (count {})", *e.count) : "");
  note_worst(f, actual, reference);
  if (!judge_special(f) || !judge_finite(f)) return;
  if (f.metrics->over == 0)
    return judge_bound_trust(
        f, e.measured != nullptr ? e.measured->trust : trust_of(actual, reference, e.bound));
  judge_outside(f);
}

void judge_baseline(Finding& f, const TensorSource& actual, const TensorSource& reference,
                    const Expectation& e) {
  judge_by_baseline(f, actual.whole(), reference.whole(), *e.baseline, *e.policy, e.threads);
  note_worst(f, actual, reference);
  if (judge_special(f)) judge_finite(f);
}

// NaN against NaN is equal, and says nothing of the numbers that should be there.
void note_nan(Finding& f) {
  const Metrics& m = *f.metrics;
  const std::int64_t both = std::min(m.actual.nan, m.reference.nan);
  if (both > 0 && f.verdict == Verdict::passed)
    f.notes.push_back(fmt::format("NaN on both sides in {} of {} elements", both, m.elements));
}

void note_balance(Finding& f) {
  const Metrics& m = *f.metrics;
  const std::int64_t differing = m.above + m.below;
  if (differing < notable_balance_elements || f.verdict == Verdict::passed) return;
  const double share = static_cast<double>(std::max(m.above, m.below)) / static_cast<double>(differing);
  if (share < notable_balance) return;
  f.notes.push_back(fmt::format("{:.0f} % of the errors point the same way (actual {} reference)",
                                100 * share, m.above > m.below ? "above" : "below"));
}

}  // namespace

bool may_judge(Finding& f, const Expectation& e) {
  if (!comparable(f)) return false;
  if (!is_float(f.actual_dtype)) return true;
  const bool has_bound = !e.bound.empty() || e.measured != nullptr || element_count(f.actual_shape) == 0;
  if (e.policy->rule == Rule::derived && !has_bound) {
    f.reason = "the derived bound needs the operator and its inputs; use it with check";
  } else if (e.policy->rule == Rule::baseline && e.baseline == nullptr) {
    f.reason = fmt::format("{} needs a baseline, a less precise golden result; {}", e.policy->name,
                           f.actual_dtype == DType::float64 ? "there is none for float64"
                                                            : "check computes it from the operator's inputs");
  } else {
    return true;
  }
  f.verdict = Verdict::no_rule;
  f.rule = f.reason;
  return false;
}

void judge(Finding& f, const TensorSource& actual, const TensorSource& reference, const Expectation& e) {
  f.actual_dtype = actual.dtype();
  f.reference_dtype = reference.dtype();
  f.actual_shape = actual.shape();
  f.reference_shape = reference.shape();
  f.count = e.count;
  if (!may_judge(f, e)) return;
  f.verdict = Verdict::passed;  // unless one of the steps below says otherwise
  const std::string bits = bits_rule(e, actual.dtype());
  if (is_float(actual.dtype()) && e.policy->rule == Rule::bitwise && actual.dtype() != reference.dtype()) {
    f.metrics = measure(actual, reference, {}, e.threads, e.exact_sums);
    f.verdict = Verdict::failed;
    f.rule = bits;
    f.reason = fmt::format("{} against {}", name(actual.dtype()), name(reference.dtype()));
  } else if (!bits.empty()) {
    judge_bits(f, actual, reference, bits, e);
  } else if (e.policy->rule == Rule::derived) {
    judge_bound(f, actual, reference, e);
  } else if (e.policy->rule == Rule::baseline) {
    judge_baseline(f, actual, reference, e);
  } else {
    judge_table(f, actual, reference, e);
  }
  if (!f.metrics) return;
  note_overflow(f);
  note_nan(f);
  note_balance(f);
  map_errors(f, actual, reference, e);
}

}  // namespace assay
