#include "assay/compare/causes/optimizer/other_gradients.h"

#include <fmt/format.h>

#include "assay/dumps/layout/merge.h"

namespace assay {
namespace {

// Each is read whole where the right gradient does not do.
constexpr std::size_t most = 32;

void add_shares(std::vector<OtherGradient>& all, const ParameterStep& s, const Sides& sides) {
  for (const LogicalTensor& t : sides.actual_tensors) {
    const Identity& id = t.id;
    const bool is_share = id.step == s.step && id.phase == Phase::backward && id.slot == "grad" &&
                          id.module == s.module && id.arg == s.arg + ".unreduced";
    if (!is_share || without_bits(sides.actual, t) != nullptr || !is_float(t.dtype)) continue;
    if (id.micro_batch >= 0 && t.shape == s.shape)
      all.push_back(
          {merge(sides.actual, t).tensor, fmt::format("that of micro-batch {} alone", id.micro_batch)});
    for (const std::size_t i : t.records) {
      const Record& r = sides.actual.records[i];
      if (t.records.size() < 2 || r.shape != s.shape || all.size() >= most) continue;
      all.push_back({sides.actual.source(i), fmt::format("the share of rank {} alone", r.rank)});
    }
  }
}

}  // namespace

std::vector<OtherGradient> other_gradients(const ParameterStep& s, const RecordedSteps& recorded,
                                           const Sides& sides) {
  std::vector<OtherGradient> all;
  for (const ParameterStep& other : recorded.steps) {
    if (other.step == s.step - 1 && other.name() == s.name())
      all.push_back({other.actual.gradient, "the gradient of the step before"});
  }
  add_shares(all, s, sides);
  for (const ParameterStep& other : recorded.steps) {
    if (other.step == s.step && other.name() != s.name() && other.shape == s.shape && all.size() < most)
      all.push_back({other.actual.gradient, "the gradient of " + other.name()});
  }
  return all;
}

}  // namespace assay
