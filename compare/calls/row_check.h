#pragma once

#include <map>
#include <string>

#include "assay/compare/calls/case.h"
#include "assay/compare/calls/check_options.h"
#include "assay/compare/pairs/trust.h"

namespace assay {

/// Tensors by the names of outputs.
using MadeOutputs = std::map<std::string, TensorSource, std::less<>>;

/// An output of a large call that is within its bound, as a part of that bound shows.
struct WithinRows {
  TensorSource golden;  ///< computed again where it is read
  MeasuredByBound measured;
};

/// Whether it is worth a try: a large call by its own bound.
bool may_judge_rows(const Case&, const CheckOptions&);

/// Judges a call row by row, so that nothing but the outputs is as large as the call, by the part of what is
/// allowed that costs little (LaneRows). Returns the outputs of which each element is within it, and the
/// whole as well (scale_test.h); others are to be judged by all that is allowed. The bits do not depend on
/// the number of threads. Empty unless may_judge_rows, and for what LaneRows does not take.
/// @throws Error  as compute_golden
std::map<std::string, WithinRows, std::less<>> within_rows(const Case&, const MadeOutputs& outputs,
                                                           const CheckOptions&);

}  // namespace assay
