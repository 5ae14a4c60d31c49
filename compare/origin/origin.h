#pragma once

#include <vector>

#include "assay/compare/causes/causes.h"
#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/origin/failing_cases.h"
#include "assay/compare/origin/judging_progress.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

struct OriginOptions {
  /// Judges every result of an operator on its own inputs, whatever the end-to-end tolerance says. A result
  /// outside the bound of its own inputs, or off as a whole by more than roundings can be, has failed and was
  /// created here. Report::coverage gets the number of judged results.
  bool isolate = false;
  /// Exempts isolated results that are right by their own inputs where everything before them is, too. False
  /// for a part of the tensors, which does not show that.
  bool may_exempt = true;
  FailingCases* cases = nullptr;  ///< gets the calls that isolation finds wrong
  int threads = 1;
  JudgingProgress progress = {};
};

/// Separates failures that were made in their own call from those that were propagated, and exempts results
/// that are right. If an operator and its inputs were recorded, the golden operator computes the result from
/// the actual side's own inputs: a result outside its error bound was created here, one inside follows from a
/// failure before it, or from rounding that was amplified. Unrecorded attributes are those with which the
/// recording of the reference is inside the bound; if none fit, nothing is claimed.
/// A failure that cannot be judged so was created here if all its inputs passed; it was inherited if one of
/// them, or something earlier in the same pass, failed. Replicas that differ are inherited only from replicas
/// that differ.
/// Fills Finding::origin and Finding::exemption; inherited failures get Verdict::inherited, and what is right
/// by its own inputs while one before it was not judged gets Verdict::undecided.
/// Returns what tensors should be that do not follow from what they were made of.
/// @param pairs  the pairs of the first findings, in order
/// @param steps  the judged results of optimizers, which are not judged again
RightValues find_origins(Report&, const std::vector<Pair>& pairs, const Sides&, const StepOrigins& steps,
                         const OriginOptions&);

}  // namespace assay
