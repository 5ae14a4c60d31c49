#pragma once

#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// Results of both sides are made by one operator, that of the reference: where classes of the actual side
/// say another one, or none that is known, they are held against it.
void share_operators(const std::vector<LogicalTensor>& reference, std::vector<LogicalTensor>& actual);

}  // namespace assay
