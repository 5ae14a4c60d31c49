// Attention-aware redistribution. Of the micro-batches that the ranks of dp work on at the same time, samples
// change ranks: attention works on pairs of positions, so that a rank with long samples holds up the others.
// A sample counts n^2, n its positions up to the last target: what is behind is padding, to which nothing
// that counts attends. They are dealt out by that (packing.h); on a rank they keep their order. Nothing is
// scaled. On devices samples are sent; here every rank loads those that it is dealt. Means of micro-batches
// and balance losses are then of other samples.
#include "assay/align/strategies/redistribution.h"

#include "assay/align/strategies/packing.h"

namespace assay::align {
namespace {

std::int64_t work(const Sequences& of_rank, std::size_t column, std::size_t sequences) {
  std::int64_t length = 0;
  for (std::size_t row = column; row < of_rank.targets.size(); row += sequences) {
    if (of_rank.targets[row] != no_target) length = static_cast<std::int64_t>(row / sequences) + 1;
  }
  return length * length;
}

}  // namespace

std::vector<Sequences> redistributed(const std::vector<Sequences>& given, const Batch& batch) {
  const auto sequences = static_cast<std::size_t>(batch.sequences);
  std::vector<std::int64_t> works;
  for (const Sequences& of_rank : given) {
    for (std::size_t column = 0; column < sequences; ++column)
      works.push_back(work(of_rank, column, sequences));
  }
  const auto dealt = packed(works, given.size());
  std::vector<Sequences> result = given;
  for (std::size_t r = 0; r < given.size(); ++r) {
    for (std::size_t column = 0; column < sequences; ++column) {
      const Sequences& from = given[dealt[r][column] / sequences];
      const std::size_t was_in = dealt[r][column] % sequences;
      for (std::size_t row = 0; row < from.tokens.size(); row += sequences) {
        result[r].tokens[row + column] = from.tokens[row + was_in];
        result[r].targets[row + column] = from.targets[row + was_in];
      }
    }
  }
  return result;
}

}  // namespace assay::align
