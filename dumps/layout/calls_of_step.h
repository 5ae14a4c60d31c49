#pragma once

#include "assay/dumps/record/dump.h"

namespace assay {

/// Where one side counts the calls of a module over the whole step and the other has micro-batches, its calls
/// become those of the micro-batches: as many in each, or as the other side has called the module. A weight
/// that it recorded in each call is one of the step: its values are copies; of its gradients the last one is
/// what the others were added to, or all are added up, as the other side's values say. The dump that is
/// changed gets a note.
void number_calls_of_step(Dump& actual, Dump& reference);

}  // namespace assay
