#include "assay/compare/flow/scale_of_sums.h"

#include <algorithm>
#include <cmath>

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// recorded = factor x made in the least squares sense, where that is one over a count, or a count.
std::optional<double> counted(const std::vector<double>& recorded, const std::vector<double>& made) {
  double product = 0, square = 0;
  for (std::size_t i = 0; i < made.size() && made.size() == recorded.size(); ++i) {
    product += recorded[i] * made[i];
    square += made[i] * made[i];
  }
  const double factor = product / square;
  if (!(factor > 0) || !std::isfinite(factor)) return {};
  return factor < 1 ? 1 / std::round(1 / factor) : std::round(factor);
}

std::optional<double> of_addends(const SideValues& side, const LogicalTensor& gradient,
                                 const LogicalTensor& addends) {
  const auto recorded = side.read(gradient), shares = side.read(addends);
  return counted(recorded->values, shares->values);
}

// With the first attributes that make the gradient with any count.
std::optional<double> of_calls(const SideValues& side, const RecordedCalls& calls, CallJudge& judge,
                               const LogicalTensor& gradient) {
  std::vector<RecordedCall> made_by = calls.producers(gradient);
  if (made_by.empty() || !std::ranges::all_of(made_by, &RecordedCall::is_complete)) return {};
  Call call(side.dump(), std::move(made_by), merge(side.dump(), gradient).tensor.whole());
  if (call.is_too_large()) return {};
  const std::vector<double> recorded = side.read(gradient)->values;
  for (const CallVariant& variant : variants_of(call.op())) {
    std::optional<double> factor;
    call.take_factor(1);
    (void)trouble_in([&] { factor = counted(recorded, call.values(variant)); });
    if (!factor) continue;
    call.take_factor(*factor);
    if (judge.fit(call, variant)) return factor;
  }
  return {};
}

}  // namespace

double scale_of_sums(const SideValues& side, const RecordedCalls& calls, CallJudge& judge) {
  constexpr int most_tries = 8;
  int tries = 0;
  for (const LogicalTensor& t : side.tensors()) {
    if (!is_whole_gradient(t.id) || side.find(t.id) != &t || !is_float(t.dtype)) continue;
    if (tries++ == most_tries) break;
    Identity addends = t.id;
    addends.arg += unreduced;
    const LogicalTensor* shares = side.find(addends);
    std::optional<double> found;
    (void)trouble_in(
        [&] { found = shares != nullptr ? of_addends(side, t, *shares) : of_calls(side, calls, judge, t); });
    if (found) return *found;
  }
  return 1;
}

}  // namespace assay
