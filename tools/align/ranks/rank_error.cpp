#include "rank_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace assay::align {
namespace {

std::string every_rank(const std::vector<std::string>& states) {
  std::vector<std::string> all;
  for (std::size_t r = 0; r < states.size(); ++r) all.push_back(fmt::format("rank {} {}", r, states[r]));
  return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace

RankError has_ended(int gone, int rank, const std::string& what, const std::vector<std::string>& states) {
  return RankError("rank {} waits in {} for rank {}, which has ended: {}", rank, what, gone,
                   every_rank(states));
}

RankError has_waited(std::chrono::milliseconds time, int rank, const std::string& what,
                     const std::vector<std::string>& states) {
  return RankError("rank {} has waited {} ms in {} for others: {}", rank, time.count(), what,
                   every_rank(states));
}

RankError is_stuck(int rank, const std::string& what, const std::vector<std::string>& states) {
  return RankError("rank {} waits in {}, and all others wait too: {}", rank, what, every_rank(states));
}

RankError is_lost(int lost, int rank, const std::string& what, const std::vector<std::string>& states) {
  return RankError("rank {} waits in {}, and rank {} does not answer: {}", rank, what, lost,
                   every_rank(states));
}

RankError do_not_agree(const std::vector<int>& group, int rank, const std::string& what,
                       const std::string& others) {
  return RankError("the ranks of [{}] do not agree on a collective: rank {} is in {}, others in {}",
                   fmt::join(group, ", "), rank, what, others);
}

void check_parts(const std::vector<int>& group, int rank, const std::string& what, std::size_t parts) {
  if (std::find(group.begin(), group.end(), rank) == group.end())
    throw RankError("{}: rank {} is not in the group [{}]", what, rank, fmt::join(group, ", "));
  if (parts != group.size())
    throw RankError("{}: rank {} gives {} parts to {} ranks", what, rank, parts, group.size());
}

}  // namespace assay::align
