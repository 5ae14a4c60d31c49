#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "assay/compare/flow/relations.h"

namespace assay {

/// Whether a tensor has so many different values that one of `tried` calls, with an attribute that is solved,
/// does not make it by accident.
bool shows_call(const SideTensor&, double tried);

/// The same of numbers that were chosen.
bool shows_choice(const SideTensor&, double tried);

/// Whether a shape fits the letters (Arg::shape), the extents of which are known or become so.
bool fits(std::string_view letters, const Shape&, std::map<std::string_view, std::int64_t>& extents);

/// Finds the operators of modules whose recorded class is not known (a framework's own norm, an activation
/// under another name): those that make the results of the reference from all that was recorded with them.
/// Both sides take them for all calls of the class.
void find_operators(const SideValues& reference, const Makes&, RecordedCalls& reference_calls,
                    RecordedCalls& actual_calls);

}  // namespace assay
