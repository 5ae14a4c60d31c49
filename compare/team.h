#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// The processes that judge one pair of dumps together. mpirun starts them; the default is a single process.
struct Team {
  int rank = 0, size = 1;
  /// Collects the text of every process, by rank. Process 0 gets all texts, the others get none. Every
  /// process must call it.
  std::function<std::vector<std::string>(const std::string& own)> gather;
};

/// Returns the process of each tensor: the largest tensor goes to the process that has the least work so far.
/// @param sizes  in any unit, at least 0
std::vector<int> share_out(std::span<const double> sizes, int processes);

/// The findings of one process.
struct Share {
  std::vector<std::size_t> at;  ///< the position of each finding in the report
  std::vector<Finding> findings;
  std::vector<std::string> unused_rules;
};
/// Moves the findings of all processes into `findings` of process 0, and keeps the rules that no process
/// used.
/// @param own  the indices of this process' findings, which are moved from
/// @return  false in the other processes
bool gather_findings(const Team&, const std::vector<std::size_t>& own, std::vector<Finding>& findings,
                     std::vector<std::string>& unused_rules);

/// Packs a share for another process of the same program. The format may change with any version.
std::string pack(const Share&);
Share unpack_share(const std::string&);

}  // namespace assay
