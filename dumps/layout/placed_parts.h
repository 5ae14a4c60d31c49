#pragma once

#include <map>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Tensors of which a recorder could not say how they lie over ranks (Record::unplaced), with all their
/// records.
using PartRecords = std::map<Identity, std::vector<std::size_t>>;

/// Places the parts of one side by the wholes of the other: shards of the dimension in which they are
/// together as long, addends where their sum is taken around them, else copies. A part that is cut over other
/// axes is placed as a whole. What fits nowhere stays unplaced.
void place_by_other(Dump&, const PartRecords&, const Dump& other);

/// Places the parts of both sides, one behind the other in the order of their ranks.
void place_alike(Dump& a, const PartRecords& of_a, Dump& b, const PartRecords& of_b);

}  // namespace assay
