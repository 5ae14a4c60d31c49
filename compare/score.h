#pragma once

#include "assay/compare/check.h"

namespace assay {

/// How near the outputs of a call are to golden, from 0 to 1: a number that is safe to reward. The smallest
/// of all outputs.
///
/// 1 for an output that passes. Else, with r its largest error / allowed and e its root mean square error,
/// the smaller one of 1 - log(r) / log(r0) and 1 - e / e0, at least 0, where r0 and e0 are the smallest that
/// any output has which has nothing of the call (trivial_outputs): those have no more than 0. It falls with
/// each of both errors. 0, too, for NaN and infinities that golden does not have, for another shape, and
/// where the rule would pass such an output.
/// @throws Error  as check does
double score(const MadeCall&, const CheckOptions&);

}  // namespace assay
