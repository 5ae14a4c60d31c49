#pragma once

#include <optional>
#include <span>

#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/diagnosis.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Nothing where losses and gradients are as large as the reference's, or where the gradients of parameters
/// are not.
/// @param findings  of the pairs, in execution order, measured as recorded
std::optional<ScaleConvention> scale_convention(std::span<Finding> findings, std::span<const Pair> pairs,
                                                const Sides&);

/// Adds the losses that are one ratio larger which conventions give: a number of micro-batches or ranks, that
/// of tokens. It explains all losses of a name, and gradients do not have it;
/// where they have it, it is the cause of what fails.
void add_losses(ScaleConvention&, std::span<Finding> findings, const Sides&, std::span<const KnownSize>);

/// Whether both sides have finite numbers in the same places.
bool is_comparable(const Finding&);

}  // namespace assay
