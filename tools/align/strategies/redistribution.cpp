// Attention-aware redistribution. Of the micro-batches that the ranks of dp work on at the same time, samples
// change ranks: attention works on pairs of positions, so that a rank with long samples holds up the others.
// A sample counts n^2, n its positions up to the last target: what is behind is padding, to which nothing
// that counts attends. The longest first, each to the rank that has least so far and room for it (Graham
// 1969, longest processing time first); on a rank they keep their order. All ranks know the lengths; nothing
// but samples is sent, nothing is scaled. Means of micro-batches and balance losses are then of other
// samples.
#include "assay/align/strategies/redistribution.h"

#include <algorithm>
#include <numeric>

namespace assay::align {
namespace {

struct Sample {
  std::size_t rank, column;  // where it was
  std::int64_t work = 0;
};

Sample sample(const Sequences& of_rank, std::size_t rank, std::size_t column, std::size_t sequences) {
  std::int64_t length = 0;
  for (std::size_t row = column; row < of_rank.targets.size(); row += sequences) {
    if (of_rank.targets[row] != no_target) length = static_cast<std::int64_t>(row / sequences) + 1;
  }
  return {rank, column, length * length};
}

}  // namespace

std::vector<Sequences> redistributed(const std::vector<Sequences>& given, const Batch& batch) {
  const auto sequences = static_cast<std::size_t>(batch.sequences);
  std::vector<Sample> samples;
  for (std::size_t r = 0; r < given.size(); ++r) {
    for (std::size_t s = 0; s < sequences; ++s) samples.push_back(sample(given[r], r, s, sequences));
  }
  std::vector<std::size_t> longest_first(samples.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::ranges::stable_sort(longest_first, std::ranges::greater(),
                           [&](std::size_t k) { return samples[k].work; });
  std::vector<std::vector<std::size_t>> dealt(given.size());
  std::vector<std::int64_t> work(given.size());
  for (const std::size_t k : longest_first) {
    std::size_t least = given.size();
    for (std::size_t r = 0; r < given.size(); ++r) {
      const bool has_room = dealt[r].size() < sequences;
      if (has_room && (least == given.size() || work[r] < work[least])) least = r;
    }
    dealt[least].push_back(k);
    work[least] += samples[k].work;
  }
  std::vector<Sequences> result = given;
  for (std::size_t r = 0; r < given.size(); ++r) {
    std::ranges::sort(dealt[r]);
    for (std::size_t s = 0; s < sequences; ++s) {
      const Sample& from = samples[dealt[r][s]];
      for (std::size_t row = 0; row < given[r].tokens.size(); row += sequences) {
        result[r].tokens[row + s] = given[from.rank].tokens[row + from.column];
        result[r].targets[row + s] = given[from.rank].targets[row + from.column];
      }
    }
  }
  return result;
}

}  // namespace assay::align
