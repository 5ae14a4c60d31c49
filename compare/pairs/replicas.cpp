#include "assay/compare/pairs/replicas.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/pairs/judge.h"
#include "assay/compare/pairs/map_errors.h"

namespace assay {

std::string to_string(const ReplicaMismatch& r, std::string_view side) {
  return fmt::format(
      "{}: ranks {} and {}{} should hold the same bits; {} elements differ, worst {:.9g} against {:.9g}",
      side, r.rank_a, r.rank_b, r.mesh_dim.empty() ? "" : " (" + r.mesh_dim + ")", r.different, r.value_a,
      r.value_b);
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
  f.diagnoses.push_back({Cause::partial_sum, {.axis = dim}, sum.ratio});
}

}  // namespace assay
