// Results that are indices: a row may choose otherwise where its scores are nearly equal.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "assay/compare/calls/call.h"

namespace assay {
namespace {

// Which choices of a row are not the golden ones. Their order does not matter; each must be there once.
std::optional<std::size_t> traded(std::span<const double> actual, std::span<const double> golden) {
  const std::set<double> chosen(actual.begin(), actual.end()), right(golden.begin(), golden.end());
  if (chosen.size() != actual.size()) return {};
  std::vector<double> gained;
  std::ranges::set_difference(chosen, right, std::back_inserter(gained));
  return gained.size();
}

}  // namespace

// The first index that is not the golden one, -1 if there is none. A row may choose either of two whose
// scores are as near to each other as roundings can move them: only the last choice and the first that was
// not made are known to be near.
std::int64_t Call::first_wrong_index(const CallVariant& variant, const std::vector<double>& actual,
                                     const std::vector<double>& golden, std::int64_t& ties) const {
  const Summand& summand = summands_.front();
  const std::string_view of_gap = output_arg(*summand.op, summand.output).gap;
  const std::size_t width = of_gap.empty() ? 1 : static_cast<std::size_t>(result_.shape().back());
  std::vector<double> gap, within;
  for (std::size_t i = 0; i < actual.size(); i += width) {
    const std::span own = std::span(actual).subspan(i, width), right = std::span(golden).subspan(i, width);
    if (std::ranges::equal(own, right)) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (of_gap.empty()) return at;
    const auto others = traded(own, right);
    if (others == 0U) continue;
    if (others != 1U) return at;
    if (gap.empty()) {
      const Attributes attributes = attributes_of(summand, variant);
      gap =
          output_named(compute_golden(*summand.op, summand.inputs, attributes, Level::fp64), of_gap).values();
      within = output_named(compute_bound(*summand.op, summand.inputs, attributes, float32_device), of_gap)
                   .values();
    }
    if (!(std::abs(gap[i / width]) <= within[i / width])) return at;
    ++ties;
  }
  return -1;
}

}  // namespace assay
