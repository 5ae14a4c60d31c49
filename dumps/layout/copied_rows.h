#pragma once

#include "assay/dumps/layout/placed_parts.h"

namespace assay {

/// Numbers the rows of modules that are given copies of rows of an earlier value in an order of their own, as
/// experts are: where ranks share out a sequence, each sorts its own tokens. Such an input was placed as
/// parts one behind the other, and is another tensor than the other side's; both sides have its rows in the
/// same earlier value. A row is that of the same place there, of several copies (a token's experts) in their
/// order.
void number_copied_rows(Dump&, const PartRecords& placed, const Dump& other);

}  // namespace assay
