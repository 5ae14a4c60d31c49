#pragma once

#include <vector>

#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Tells failures that were made where they are seen from those that were handed on. Where an operator and
/// its inputs were recorded, the golden operator is replayed on the actual side's own inputs: outside its
/// error bound the failure was created here, inside it was inherited. Attributes that no recorder writes are
/// those with which the reference's own recording is inside the bound; where none does, nothing is claimed.
/// Without a replay a failure is created where all its inputs passed, and inherited where one of them, or
/// something that ran before it in the same pass, failed. Fills Finding::origin and turns inherited failures
/// into Verdict::inherited.
/// @param pairs  of findings[i], for as many as there are
/// @param steps  what is known of results of optimizers, which are not replayed again
void find_origins(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides&,
                  const StepOrigins& steps);

/// The same, but every result that an operator made is judged by itself, whatever the end-to-end tolerance
/// says of it: one that is outside of the bound of its own inputs, or off as a whole by more than roundings
/// can be, has failed and was created here. Fills Report::notes with how many could be judged.
void isolate(Report&, const std::vector<Pair>& pairs, const Sides&, const StepOrigins&);

}  // namespace assay
