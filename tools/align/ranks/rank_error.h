#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "assay/golden/error.h"

namespace assay::align {

/// A problem between ranks, in the same words on every transport; it says which ranks.
struct RankError : Error {
  using Error::Error;
};

/// @param states  what every rank is at: "waits in all-reduce"
RankError has_ended(int gone, int rank, const std::string& what, const std::vector<std::string>& states);
RankError has_waited(std::chrono::milliseconds, int rank, const std::string& what,
                     const std::vector<std::string>& states);
RankError is_stuck(int rank, const std::string& what, const std::vector<std::string>& states);
RankError is_lost(int lost, int rank, const std::string& what, const std::vector<std::string>& states);
RankError do_not_agree(const std::vector<int>& group, int rank, const std::string& what,
                       const std::string& others);

/// @throws RankError  if the rank is not in the group, or gives another number of parts than there are ranks
void check_parts(const std::vector<int>& group, int rank, const std::string& what, std::size_t parts);

}  // namespace assay::align
