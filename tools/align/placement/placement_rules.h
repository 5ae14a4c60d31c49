#pragma once

#include <string>
#include <vector>

#include "assay/align/placement/machine.h"

/// How a call's outputs and gradients are placed, given its inputs: read from the operator's declared shapes.
/// A letter that is sharded in the inputs is sharded in what has it, and what has been summed over it is
/// partial.
namespace assay::align {

/// Sets the placement of every output.
/// @param declared  what is known beforehand of the outputs, where data and not shapes say it
/// @throws Error  if the inputs do not go together: a partial one in an operator that is not linear in it,
///                shards of a dimension that the operator needs whole
void place_outputs(const std::string& module, const Operator&, const std::vector<NamedValue>& inputs,
                   const Attributes&, const std::vector<Sharding>& declared,
                   std::vector<NamedValue>& outputs);

struct PlacedGradient {
  std::string name;  ///< of the output, or the input
  MeshPlacement placement;
};

/// Of every input that has one.
std::vector<PlacedGradient> place_gradients(const Operator&, const std::vector<NamedValue>& inputs,
                                            const std::vector<NamedValue>& outputs, const Attributes&,
                                            const std::vector<PlacedGradient>& of_outputs);

}  // namespace assay::align
