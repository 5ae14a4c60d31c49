#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Separates failures that were made in their own call from those that were propagated. If an operator and
/// its inputs were recorded, the golden operator computes the result from the actual side's own inputs: a
/// result outside its error bound was created here, one inside was inherited. Unrecorded attributes are those
/// with which the recording of the reference is inside the bound; if none fit, nothing is claimed.
/// A failure that cannot be judged so was created here if all its inputs passed; it was inherited if one of
/// them, or something earlier in the same pass, failed. Fills Finding::origin and turns inherited failures
/// into Verdict::inherited.
/// @param pairs  the pairs of the first findings, in order
/// @param steps  the judged results of optimizers, which are not judged again
void find_origins(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides&,
                  const StepOrigins& steps);

/// Does the same, and judges every result of an operator on its own inputs, whatever the end-to-end tolerance
/// says. A result outside the bound of its own inputs, or off as a whole by more than roundings can be, has
/// failed and was created here. Fills Report::notes with the number of judged results.
void isolate(Report&, const std::vector<Pair>& pairs, const Sides&, const StepOrigins&);

}  // namespace assay
