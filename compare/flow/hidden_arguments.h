#pragma once

#include <functional>
#include <vector>

#include "assay/operators/engine/operator.h"

/// What an operator may be given where programs make its call in no module.
namespace assay {

using Arguments = std::vector<const Arg*>;

/// The arguments that may be given together, in the order in which they are tried.
/// @param has  whether there is something that an index may be: which keys a query sees
std::vector<Arguments> arguments(const Operator&, const std::function<bool(const Arg&)>& has);

/// The defaults, and each flag that changes shapes; the operator infers it from them.
std::vector<Attributes> reshaping(const Operator&);

}  // namespace assay
