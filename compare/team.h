#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// The processes that judge one pair of dumps together, as mpirun starts them; by default one alone.
struct Team {
  int rank = 0, size = 1;
  /// What all processes say, by rank, in process 0; nothing elsewhere. Every process must call it.
  std::function<std::vector<std::string>(const std::string& own)> gather;
};

/// Which process judges which tensor: the largest goes to the process that has least so far.
/// @param sizes  in any unit, at least 0
std::vector<int> share_out(std::span<const double> sizes, int processes);

/// What one process found.
struct Share {
  std::vector<std::size_t> at;  ///< where its findings stand in the report
  std::vector<Finding> findings;
  std::vector<std::string> unused_rules;
};
/// Puts the findings of all processes into those of process 0, and leaves the rules that none of them used.
/// @param own  which of the findings this process has; they are moved from
/// @return  false in the other processes
bool gather_findings(const Team&, const std::vector<std::size_t>& own, std::vector<Finding>& findings,
                     std::vector<std::string>& unused_rules);

/// For a process of the same program: no format that lasts.
std::string pack(const Share&);
Share unpack_share(const std::string&);

}  // namespace assay
