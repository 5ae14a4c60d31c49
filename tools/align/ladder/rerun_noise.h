#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

/// What correct runs of the same differ by, where their sums are added up in other orders: for tensors of
/// which no bound is known.
namespace assay::align {

/// By tensor: the largest relative L2 between a rerun and the first run.
using RerunNoise = std::map<std::string, double>;

/// @param rerun  of the reference against its first run
void add_rerun(RerunNoise&, const Report& rerun);

/// Failures that no replay of their operator and no diagnosis has settled.
bool has_undecided_roots(const Report&);

/// Takes those that are within the noise for rounding that grew, and what was said to follow from them but is
/// beyond its own noise for failures of their own. Returns how many are within.
std::size_t excuse_noise(Report&, const RerunNoise&);

}  // namespace assay::align
