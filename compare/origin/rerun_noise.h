#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

/// The differences between correct runs of one program whose sums are added up in other orders: for tensors
/// without a known bound.
namespace assay {

/// By tensor: the largest relative L2 between a rerun of the reference and its first run.
using RerunNoise = std::map<std::string, double>;

/// @param rerun  of the reference against its first run
void add_rerun(RerunNoise&, const Report& rerun);

/// Whether a failure is settled neither by a replay of its operator nor by a diagnosis.
bool has_open_roots(const std::vector<Finding>&);

/// Exempts failures within the noise. A failure that was said to follow from one of them but is beyond its
/// own noise becomes a failure of its own.
void exempt_noise(std::vector<Finding>&, const RerunNoise&);

}  // namespace assay
