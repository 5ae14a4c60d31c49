#pragma once

#include "assay/compare/calls/scale_test.h"

namespace assay {

/// The factor of all elements, less 1, as the mean of those of groups that share no roundings
/// (ScaleTest::apart), and what roundings may make of it: `allowed` is infinite where there are too few
/// groups to tell.
ScaleError scale_of_groups(const ScaleTest&);

}  // namespace assay
