#pragma once

#include <vector>

#include "assay/operators/engine/operator.h"

/// What an operator may be given where programs make its call in no module.
namespace assay {

using Arguments = std::vector<const Arg*>;

/// The arguments that may be given together, in the order in which they are tried.
/// @param has_masks  of keys, of which one may be among them
std::vector<Arguments> arguments(const Operator&, bool has_masks);

/// The defaults, and each flag that changes shapes; the operator infers it from them.
std::vector<Attributes> reshaping(const Operator&);

}  // namespace assay
