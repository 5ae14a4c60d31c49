#include "assay/compare/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

// Share of the elements whose error has one sign, from which on the report mentions it. Not a verdict:
// elements that share a divisor (softmax, norms) err to one side together in correct kernels.
constexpr double notable_balance = 0.95;
constexpr std::int64_t notable_balance_elements = 64;

std::string at(const Finding& f, std::int64_t position) {
  return to_string(unravel(position, f.actual_shape));
}

void note_worst(Finding& f, const Tensor& actual, const Tensor& reference, std::int64_t position) {
  if (position < 0) return;
  f.actual_value = actual.value(position);
  f.reference_value = reference.value(position);
}

// Whether the pair may be compared at all.
bool comparable(Finding& f, const Tensor& actual, const Tensor& reference) {
  if (actual.shape() != reference.shape()) {
    f.reason = fmt::format("shape {} against {}", to_string(actual.shape()), to_string(reference.shape()));
  } else if (is_float(actual.dtype()) != is_float(reference.dtype())) {
    f.reason = fmt::format("{} against {}", name(actual.dtype()), name(reference.dtype()));
  } else {
    return true;
  }
  f.verdict = Verdict::not_comparable;
  f.rule = "shape and kind of dtype";
  return false;
}

void judge_bits(Finding& f, const Tensor& actual, const Tensor& reference, std::string rule, int threads) {
  f.metrics = measure(actual, reference, {}, threads);
  f.rule = std::move(rule);
  const Metrics& m = *f.metrics;
  const std::int64_t worst = m.worst_at >= 0 ? m.worst_at : m.special_mismatch_at;
  note_worst(f, actual, reference, worst);
  f.ratio = m.different_bits == 0 ? 0 : std::numeric_limits<double>::infinity();
  if (m.different_bits == 0) return;
  f.verdict = Verdict::failed;
  f.reason = fmt::format("{} of {} elements differ", m.different_bits, m.elements);
}

// False if the pattern of NaN and Inf differs: that decides before any tolerance.
bool judge_special(Finding& f, const Tensor& actual, const Tensor& reference) {
  const Metrics& m = *f.metrics;
  if (m.special_mismatch == 0) return true;
  f.verdict = Verdict::failed;
  f.reason = fmt::format("NaN or Inf on one side only in {} of {} elements, first at {}", m.special_mismatch,
                         m.elements, at(f, m.special_mismatch_at));
  note_worst(f, actual, reference, m.special_mismatch_at);
  return false;
}

void judge_outside(Finding& f) {
  f.verdict = Verdict::failed;
  f.reason = fmt::format("{} of {} elements outside, error/allowed {:.3g}", f.metrics->over,
                         f.metrics->elements, f.ratio);
}

// The error is inside, but would zeros have been inside too? Then the table says nothing about this tensor,
// and the scale-free relative L2 error, held to the same tolerance, has the last word.
void judge_trust(Finding& f, const Row& row) {
  const Metrics& m = *f.metrics;
  const double largest = std::max(std::abs(m.reference.min), std::abs(m.reference.max));
  if (m.different_bits == 0 || row.atol + row.rtol * largest < largest) return;
  if (m.relative_l2 <= row.rtol) {
    f.notes.push_back(
        fmt::format("every value is below the allowed error; decided by relative L2 {:.2g} <= {:g}",
                    m.relative_l2, row.rtol));
    return;
  }
  f.verdict = Verdict::mistrusted;
  f.reason = fmt::format(
      "every value is below the allowed error (largest {:.3g}), and relative L2 {:.2g} is over {:g}", largest,
      m.relative_l2, row.rtol);
}

bool measure_row(Finding& f, const Tensor& actual, const Tensor& reference, const Row& row, int threads) {
  f.metrics = measure(actual, reference, {row.atol, row.rtol, {}}, threads);
  f.ratio = f.metrics->worst_ratio;
  f.required = row.atol == row.rtol && f.metrics->special_mismatch == 0
                   ? f.ratio * row.atol
                   : std::numeric_limits<double>::quiet_NaN();
  return f.metrics->over == 0;
}

void judge_table(Finding& f, const Tensor& actual, const Tensor& reference, const Expectation& e) {
  const Policy& policy = *e.policy;
  const auto rows = policy.rows_of(e.row_dtype);
  const auto rule_of = [&](const Row& row) {
    return to_string(policy, row) +
           (e.count ? fmt::format(" (count {})", *e.count) : " (count unknown: strictest row)") +
           (e.row_reason.empty() ? "" : "; " + e.row_reason);
  };
  if (rows.empty()) {
    f.metrics = measure(actual, reference, {}, e.threads);
    note_worst(f, actual, reference, f.metrics->worst_at);
    f.rule = policy.name + " has no row for " + std::string(name(e.row_dtype));
    if (f.metrics->different_bits == 0) return;
    f.verdict = Verdict::no_rule;
    f.reason = f.rule + "; add a [[tolerance]] rule";
    return;
  }
  // Without a count the first row decides: what passes there passes at every count.
  const Row* row = e.count ? policy.find(e.row_dtype, *e.count) : &rows.front();
  const bool within = measure_row(f, actual, reference, *row, e.threads);
  f.rule = rule_of(*row);
  note_worst(f, actual, reference, f.metrics->worst_at);
  if (!judge_special(f, actual, reference)) return;
  if (within) return judge_trust(f, *row);
  judge_outside(f);
  if (e.count) return;
  // Fails at the strictest row; a larger count, if it were known, might still allow it.
  for (const Row& looser : rows.subspan(1)) {
    if (measure(actual, reference, {looser.atol, looser.rtol, {}}, e.threads).over > 0) continue;
    f.verdict = Verdict::no_rule;
    f.reason = fmt::format(
        "passes only with an accumulation count >= {}, which is unknown; add a [[count]] rule", looser.count);
    return;
  }
}

void judge_bound(Finding& f, const Tensor& actual, const Tensor& reference, const Expectation& e) {
  f.metrics = measure(actual, reference, {0, 0, e.bound}, e.threads);
  f.ratio = f.metrics->worst_ratio;
  f.rule = e.bound_source;
  note_worst(f, actual, reference, f.metrics->worst_at);
  if (!judge_special(f, actual, reference) || f.metrics->over == 0) return;
  judge_outside(f);
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

void judge(Finding& f, const Tensor& actual, const Tensor& reference, const Expectation& e) {
  f.actual_dtype = actual.dtype();
  f.reference_dtype = reference.dtype();
  f.actual_shape = actual.shape();
  f.reference_shape = reference.shape();
  f.count = e.count;
  if (!comparable(f, actual, reference)) return;
  if (!is_float(actual.dtype())) {
    judge_bits(f, actual, reference, "integers: every bit equal", e.threads);
  } else if (e.policy->rule == Rule::bitwise) {
    judge_bits(f, actual, reference, "bitwise: every bit equal", e.threads);
  } else if (e.promises_bits) {
    judge_bits(f, actual, reference, e.bits_reason, e.threads);
  } else if (e.policy->rule == Rule::derived) {
    judge_bound(f, actual, reference, e);
  } else {
    judge_table(f, actual, reference, e);
  }
  note_balance(f);
}

}  // namespace assay
