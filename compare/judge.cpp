#include "assay/compare/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/judge/baseline.h"
#include "assay/compare/kernels/ordinals.h"

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

// False if the pattern of NaN and Inf differs: that decides before any tolerance.
bool judge_special(Finding& f) {
  const Metrics& m = *f.metrics;
  if (m.special_mismatch == 0) return true;
  f.verdict = Verdict::failed;
  f.reason = fmt::format("NaN or Inf on one side only in {} of {} elements, first at {}", m.special_mismatch,
                         m.elements, at(f, m.special_mismatch_at));
  return false;
}

void judge_outside(Finding& f) {
  f.verdict = Verdict::failed;
  f.reason = fmt::format("{} of {} elements outside, error/allowed {:.3g}", f.metrics->over,
                         f.metrics->elements, f.ratio);
}

// The error is inside, but where the allowed error is as large as the value itself, zeros would have been
// inside too: of those elements the table says nothing. What is wrong with them, in relative L2 of the whole
// tensor, is held to the same tolerance; a tensor that fails here may still be right, but this rule cannot
// tell.
void judge_trust(Finding& f, const TensorSource& actual, const TensorSource& reference, const Row& row) {
  const Metrics& m = *f.metrics;
  const double largest = std::max(std::abs(m.reference.min), std::abs(m.reference.max));
  const bool sees_some = row.atol + row.rtol * largest < largest;
  if (m.different_bits == 0 || (sees_some && m.relative_l2 <= row.rtol && m.relative_l2 < 1)) return;
  double hidden = 0, norm = 0;
  std::int64_t blind = 0, finite = 0;
  actual.for_each_window([&](const Tensor& window, std::int64_t begin) {
    const std::vector<double> a = window.values(), r = reference.window(begin, window.size()).values();
    for (std::size_t i = 0; i < r.size(); ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(r[i])) continue;
      ++finite;
      norm = std::hypot(norm, r[i]);
      if (row.atol + row.rtol * std::abs(r[i]) < std::abs(r[i])) continue;
      ++blind;
      hidden = std::hypot(hidden, a[i] - r[i]);
    }
  });
  // Zeros have hidden == norm: they never pass, however generous the table.
  if (hidden == 0 || (hidden <= row.rtol * norm && hidden < norm)) {
    if (blind != finite) return;
    for (std::string* text : {&f.rule, &f.row}) *text += "; all below it: by relative L2";
    return;
  }
  f.verdict = Verdict::mistrusted;
  f.reason = fmt::format(
      "{} of {} values are below their allowed error, and their errors make a relative L2 of {:.2g}, over "
      "{:g}",
      blind, m.elements, hidden / norm, row.rtol);
}

// NaN against NaN is equal, and so is an infinity that its dtype forced, but no number was judged.
bool judge_finite(Finding& f) {
  const Metrics& m = *f.metrics;
  if (m.elements == 0 || m.reference.nan + m.overflowed < m.elements) return true;
  f.verdict = Verdict::mistrusted;
  f.reason = "no element is a number on both sides: nothing was judged";
  return false;
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
  if (within) return judge_trust(f, actual, reference, *row);
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

// A bound is proved, so results inside it pass even where it is larger than the values; but not those that
// are no better than zeros, and nothing passes by a bound that is infinite: that is no guarantee.
void judge_bound_trust(Finding& f, const TensorSource& actual, const TensorSource& reference,
                       std::span<const double> bound) {
  const Metrics& m = *f.metrics;
  if (m.different_bits == 0) return;
  const std::vector<double> values = reference.whole().values();
  bool zeros_pass = true, only_zeros = true, unbounded = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    zeros_pass = zeros_pass && std::abs(values[i]) <= bound[i];
    only_zeros = only_zeros && values[i] == 0;
    unbounded =
        unbounded || (std::isinf(bound[i]) && actual.value(static_cast<std::int64_t>(i)) != values[i]);
  }
  if (unbounded) {
    f.verdict = Verdict::mistrusted;
    f.reason = "the error bound is infinite where elements differ: it guarantees nothing";
  } else if (zeros_pass && !only_zeros) {
    const std::string text =
        fmt::format("every value is below the allowed error; relative L2 is {:.2g}", m.relative_l2);
    if (m.relative_l2 < 1) {
      f.notes.push_back(text);
    } else {
      f.verdict = Verdict::mistrusted;
      f.reason = text + ", no better than zeros";
    }
  }
}

void judge_bound(Finding& f, const TensorSource& actual, const TensorSource& reference,
                 const Expectation& e) {
  f.metrics = measure(actual, reference, {0, 0, e.bound}, e.threads, e.exact_sums);
  f.ratio = f.metrics->worst_ratio;
  f.row = e.bound_source;
  f.rule = f.row + (e.count ? fmt::format(" (count {})", *e.count) : "");
  note_worst(f, actual, reference);
  if (!judge_special(f) || !judge_finite(f)) return;
  if (f.metrics->over == 0) return judge_bound_trust(f, actual, reference, e.bound);
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

void map_errors(Finding& f, const TensorSource& actual, const TensorSource& reference, const Expectation& e) {
  if (!e.map_errors || !f.metrics || f.verdict == Verdict::passed) return;
  Allowed allowed;
  if (is_float(actual.dtype()) && !e.promises_bits) {
    const Row* row = e.policy->rule == Rule::atol_rtol ? deciding_row(e) : nullptr;
    if (row != nullptr) allowed = {row->atol, row->rtol, {}};
    allowed.bound = e.bound;
  }
  f.error_map = error_map(actual, reference, allowed, e.threads);
}

}  // namespace

std::string to_string(const ReplicaMismatch& r, std::string_view side) {
  return fmt::format(
      "{}: ranks {} and {}{} should hold the same bits; {} elements differ, worst {:.9g} against {:.9g}",
      side, r.rank_a, r.rank_b, r.mesh_dim.empty() ? "" : " (" + r.mesh_dim + ")", r.different, r.value_a,
      r.value_b);
}

bool may_judge(Finding& f, const Expectation& e) {
  if (!comparable(f)) return false;
  if (!is_float(f.actual_dtype)) return true;
  if (e.policy->rule == Rule::derived && e.bound.empty() && element_count(f.actual_shape) > 0) {
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

void judge_replicas(Finding& f, const Merged& actual, const Merged* reference, const TensorSource& judged_by,
                    const Expectation& e) {
  const bool reference_differs = reference != nullptr && !reference->replicas.empty();
  if (actual.replicas.empty() && !reference_differs) return;
  const bool first_agrees = f.verdict == Verdict::passed && !actual.replicas.empty();
  // Copies that the tolerance takes for zeros add nothing to a sum.
  const bool first_adds = f.metrics && std::max(f.metrics->actual.max, -f.metrics->actual.min) > f.atol;
  f.verdict = Verdict::replicas_differ;
  f.rule = "replicas: every bit equal";
  f.reason = actual.replicas.empty() ? to_string(reference->replicas.front(), "reference")
                                     : to_string(actual.replicas.front(), "actual");
  if (!f.error_map) map_errors(f, actual.tensor, judged_by, e);
  if (first_agrees) f.notes.push_back("the copies of the first ranks agree with the reference");
  if (!actual.sum_of_replicas || first_agrees || !first_adds) return;
  Finding sum;
  Expectation same = e;
  same.map_errors = false;
  judge(sum, *actual.sum_of_replicas, judged_by, same);
  if (sum.verdict != Verdict::passed) return;
  const std::string& dim = actual.replicas.front().mesh_dim;
  f.diagnoses.push_back(
      {"partial_sum",
       fmt::format("their sum is the reference (error/allowed {:.2g}): each rank holds a partial sum, "
                   "the all-reduce over {} is missing",
                   sum.ratio, dim.empty() ? "these ranks" : dim),
       sum.ratio});
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
