#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::align {

/// Deals items out to ranks, to each as many: the one with most work first, each to the rank that has least
/// so far and room (Graham 1969, longest processing time first).
/// @param work  of each item; their number divides over the ranks
/// @return  the items of each rank, rising
std::vector<std::vector<std::size_t>> packed(std::span<const std::int64_t> work, std::size_t ranks);

}  // namespace assay::align
