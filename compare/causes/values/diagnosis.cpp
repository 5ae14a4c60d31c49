#include "assay/compare/causes/values/diagnosis.h"

#include "assay/compare/causes/values/failing_pair.h"

namespace assay {

std::vector<Diagnosis> diagnose(const TensorSource& actual, const TensorSource& reference,
                                const DiagnosisContext& context) {
  const bool comparable =
      actual.shape() == reference.shape() && is_float(actual.dtype()) == is_float(reference.dtype());
  return comparable ? explain({actual, reference, context}) : std::vector<Diagnosis>();
}

std::vector<Diagnosis> explain(const FailingPair& pair) {
  std::vector<Diagnosis> found;
  if (pair.over == 0) return found;
  explain_bit(pair, found);
  if (!found.empty()) return found;
  explain_range(pair, found);
  explain_precision(pair, found);
  explain_factor(pair, found);
  explain_order(pair, found);
  if (found.empty()) explain_added_constant(pair, found);
  if (found.empty()) explain_sum_of_pieces(pair, found);
  if (found.empty()) explain_added_column(pair, found);
  if (!found.empty()) return found;
  // These have a parameter for each row and would describe most of the above, too.
  explain_rope(pair, found);
  if (found.empty()) explain_permuted(pair, found);
  if (found.empty()) explain_row_factors(pair, found);
  if (found.empty()) explain_factor_of_some(pair, found);
  return found;
}

}  // namespace assay
