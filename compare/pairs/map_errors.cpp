#include "assay/compare/pairs/map_errors.h"
#include "assay/compare/measure/error_map.h"

namespace assay {

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

}  // namespace assay
