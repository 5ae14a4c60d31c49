// For N targets of the step, n of the micro-batch and its mean L, averaging over tokens counts
// (docs/semantics.md A11 to A13; Megatron-LM scales every gradient by 1 / N in the end, here the losses have
// it from the beginning):
//   cross entropy: n / N, so that each target counts 1 / N.
//   multi-token prediction: n / N too, though fewer targets are left at its depths: its mean counts as much
//   as the main one's, so that it depends a little on the grouping.
//   losses of routers (balance, z): tokens / N: masks are of targets, a router sees every token; without
//   masks that is 1 / micro-batches, with them more. There is no padding here, which a router does not count.
#include "assay/align/step/loss_shares.h"

#include <algorithm>
#include <numeric>

#include "assay/align/settings/settings_keys.h"

namespace assay::align {
namespace {

// In the order of the enumerators.
const std::vector<std::string_view>& names() {
  static const std::vector<std::string_view> all = {"micro-batches", "tokens"};
  return all;
}

}  // namespace

std::string_view name(LossAverage average) {
  return names()[static_cast<std::size_t>(average)];
}

LossAverage parse_loss_average(std::string_view text) {
  std::size_t average = 0;
  const std::string expected = read_choice(text, names(), average);
  if (!expected.empty()) throw Error("--loss-average is '{}'; expected {}", text, expected);
  return static_cast<LossAverage>(average);
}

LossShares::LossShares(LossAverage average, std::int64_t tokens, std::vector<std::int64_t> valid_targets)
    : average_(average),
      tokens_(static_cast<double>(tokens)),
      all_targets_(static_cast<double>(
          std::max<std::int64_t>(1, std::reduce(valid_targets.begin(), valid_targets.end())))),
      valid_targets_(std::move(valid_targets)) {}

double LossShares::of(const Loss& loss, std::int64_t micro_batch) const {
  if (average_ == LossAverage::micro_batches) return 1 / static_cast<double>(valid_targets_.size());
  if (loss.mean_of == MeanOf::tokens) return tokens_ / all_targets_;
  return static_cast<double>(valid_targets_.at(static_cast<std::size_t>(micro_batch))) / all_targets_;
}

}  // namespace assay::align
