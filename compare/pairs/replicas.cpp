#include "assay/compare/pairs/replicas.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/measure/measure.h"
#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/map_errors.h"

namespace assay {

std::string to_string(const ReplicaMismatch& r, std::string_view side) {
  return fmt::format(
      "{}: ranks {} and {}{} should hold the same bits; {} elements differ, worst {:.9g} against {:.9g}",
      side, r.rank_a, r.rank_b, r.mesh_dim.empty() ? "" : " (" + r.mesh_dim + ")", r.different, r.value_a,
      r.value_b);
}

namespace {

// Largest error / allowed of the sum, on the tensor's own scale: a tolerance that is above its values passes
// each copy, and the sum as well. Nothing if the sum is wrong, or the first copy as right.
std::optional<double> sum_is_right(const Finding& f, const Merged& actual, const TensorSource& judged_by,
                                   const Expectation& e) {
  const Allowed own = on_its_own_scale(f);
  if (own.rtol > 0) {
    const Side& first = f.metrics->actual;
    if (!(std::max(first.max, -first.min) > own.atol)) return {};  // it adds nothing
    const Metrics sum = measure(*actual.sum_of_replicas, judged_by, own);
    const bool first_is_right = measure(actual.tensor, judged_by, own).worst_ratio <= 1;
    if (sum.special_mismatch > 0 || !(sum.worst_ratio <= 1) || first_is_right) return {};
    return sum.worst_ratio;
  }
  Finding sum;
  Expectation same = e;
  same.map_errors = false;
  judge(sum, *actual.sum_of_replicas, judged_by, same);
  return sum.verdict == Verdict::passed ? std::optional(sum.ratio) : std::nullopt;
}

}  // namespace

void judge_replicas(Finding& f, const Merged& actual, const Merged* reference, const TensorSource& judged_by,
                    const Expectation& e) {
  const bool reference_differs = reference != nullptr && !reference->replicas.empty();
  if (actual.replicas.empty() && !reference_differs) return;
  const bool first_agrees = f.verdict == Verdict::passed && !actual.replicas.empty();
  f.verdict = Verdict::replicas_differ;
  f.rule = "replicas: every bit equal";
  f.reason = actual.replicas.empty() ? to_string(reference->replicas.front(), "reference")
                                     : to_string(actual.replicas.front(), "actual");
  if (!f.error_map) map_errors(f, actual.tensor, judged_by, e);
  if (first_agrees) f.notes.push_back("the copies of the first ranks agree with the reference");
  if (!actual.sum_of_replicas || first_agrees || !f.metrics) return;
  const auto ratio = sum_is_right(f, actual, judged_by, e);
  if (!ratio) return;
  const std::string& dim = actual.replicas.front().mesh_dim;
  f.diagnoses.push_back({Cause::partial_sum, {.axis = dim}, *ratio});
}

}  // namespace assay
