#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/align/ranks/ranks.h"

namespace assay::align {

/// The expert in each slot of a layer; a rank of ep has experts / ep slots, rank after rank.
using Slots = std::vector<std::int64_t>;

/// Expert e in slot e.
Slots home_slots(std::int64_t experts);
/// So that ranks have as many tokens as can be.
/// @param tokens  of each expert
Slots slots_by_load(std::span<const std::int64_t> tokens, std::int64_t ranks);
/// The slot of each expert.
std::vector<std::int64_t> slots_of_experts(const Slots&);

/// This rank's part, along the first dimension, of a tensor of all experts that goes to other slots.
Tensor move_experts(const Ranks&, const std::string& name, const Tensor& part, const Slots& from,
                    const Slots& to);

}  // namespace assay::align
