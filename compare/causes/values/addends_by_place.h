#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// What the ranks at one place of a sum add, and the micro-batches of these ranks.
struct Addend {
  std::set<std::int64_t> micro_batches;
  std::vector<double> values;
};

/// The addends of a tensor that is a sum over dimensions of the mesh.
/// @param values_in  reads the sum in a dump where all other addends are zeros
std::vector<Addend> addends_by_place(const Dump&, const LogicalTensor& sum,
                                     const std::function<std::vector<double>(const Dump&)>& values_in);

}  // namespace assay
