#include "assay/align/strategies/packing.h"

#include <algorithm>
#include <numeric>

namespace assay::align {

std::vector<std::vector<std::size_t>> packed(std::span<const std::int64_t> work, std::size_t ranks) {
  const std::size_t room = work.size() / ranks;
  std::vector<std::size_t> largest_first(work.size());
  std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
  std::ranges::stable_sort(largest_first, std::ranges::greater(), [&](std::size_t k) { return work[k]; });
  std::vector<std::vector<std::size_t>> items(ranks);
  std::vector<std::int64_t> load(ranks);
  for (const std::size_t k : largest_first) {
    std::size_t least = ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (items[r].size() < room && (least == ranks || load[r] < load[least])) least = r;
    }
    items[least].push_back(k);
    load[least] += work[k];
  }
  for (std::vector<std::size_t>& of_rank : items) std::ranges::sort(of_rank);
  return items;
}

}  // namespace assay::align
