// What was done where a loss is that of other tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/flow/hidden_loss.h"
#include "assay/compare/result/trouble.h"

namespace assay {

namespace {

// Places at which the gradients show other classes.
std::int64_t count_others(const std::vector<double>& a, const std::vector<double>& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

}  // namespace

// Labels that were shifted once more or not at all, those of another micro-batch, and another loss of the
// same ones. The factor of the reference stays: with another one almost any tokens come near.
std::optional<HiddenLosses::Mistake> HiddenLosses::find_mistake(const SideValues& side,
                                                                const RecordedCalls& calls, const Name& value,
                                                                const LogicalTensor& gradient,
                                                                const SideTensor& recorded) const {
  const auto known = known_.find(value);
  if (known == known_.end() || !known->second.concludes()) return {};
  // No tokens show in a gradient of zeros: all of them may be left out.
  if (std::ranges::all_of(recorded.values, [](double v) { return v == 0; })) return {};
  const Loss& right = known->second;
  std::vector<Mistake> tried;
  const auto try_tokens = [&](Loss other, const std::string& text) {
    CauseParameters which = {.shift = other.ahead + other.rolled - right.ahead,
                             .op = std::string(other.op->name),
                             .how = "its targets are " + text};
    if (other.of_micro_batch >= 0) which.micro_batch = other.of_micro_batch;
    tried.push_back({std::move(other), {Cause::wrong_tokens, std::move(which), 0}});
  };
  // Where no tokens tell a target, the gradient does.
  const std::pair frame{gradient.id.step, gradient.id.micro_batch};
  Loss seen = right;
  const auto shown = seen.shown.find(frame);
  if (shown != seen.shown.end() && !gradient.shape.empty()) {
    const std::vector<double> own = lowest_classes(recorded.values, gradient.shape);
    if (own.size() == shown->second.size())
      std::ranges::transform(
          shown->second, own, shown->second.begin(),
          [](double of_reference, double of_actual) { return of_reference < 0 ? of_reference : of_actual; });
  }
  for (const int by : {1, -1, 2, -2}) {
    if (!right.index) break;
    for (const bool rolls : {false, true}) {
      Loss other = seen;
      (rolls ? other.rolled : other.ahead) += by;
      const std::string text =
          fmt::format("the tokens {} places ahead{}, where the reference has those {} ahead",
                      right.ahead + by, rolls ? " (rolled, with wrap-around)" : "", right.ahead);
      try_tokens(other, text);
      // Places that have no target in the reference have one in these tokens.
      if (other.shown.erase(frame) > 0) try_tokens(std::move(other), text);
    }
  }
  for (const LogicalTensor* index :
       right.index ? side.named(*right.index) : std::vector<const LogicalTensor*>()) {
    if (index->id.step != gradient.id.step || index->id.micro_batch == gradient.id.micro_batch) continue;
    Loss other = seen;
    other.of_micro_batch = index->id.micro_batch;
    try_tokens(std::move(other), fmt::format("those of micro-batch {}", index->id.micro_batch));
  }
  const auto try_attributes = [&](Loss other) {
    CauseParameters which = other_attributes(*right.op, other.variant, right.variant);
    tried.push_back({std::move(other), {Cause::attribute, std::move(which), 0}});
  };
  for (const CallVariant& variant : mistakes_for(*right.op, right.variant)) {
    Loss other = right;
    other.variant = variant;
    try_attributes(std::move(other));
  }
  if (const LogicalTensor* t = side.find(at(record_of(value), gradient.id.step, gradient.id.micro_batch))) {
    for (Loss& other : solved(right, side, calls, *t, recorded.values)) {
      if (!is_same(other.variant, right.variant)) try_attributes(std::move(other));
    }
  }
  if (shown != seen.shown.end()) {
    const std::int64_t others = count_others(shown->second, right.shown.at(frame));
    Loss other = seen;
    other.index.reset();
    if (others > 0)
      try_tokens(std::move(other), fmt::format("others than the reference's at {} of {} places", others,
                                               std::ssize(shown->second)));
  }
  for (Mistake& m : tried) {
    std::optional<DerivedValue> made;
    (void)trouble_in([&] { made = gradient_of(m.loss, side, calls, value, gradient.id); });
    if (!made || made->values.size() != recorded.values.size()) continue;
    double worst = 0;
    for (std::size_t i = 0; i < made->values.size(); ++i) {
      const double allowed = made->error[i] + unit_roundoff(recorded.dtype) * std::abs(made->values[i]) +
                             min_subnormal(recorded.dtype);
      const double ratio = std::abs(recorded.values[i] - made->values[i]) / allowed;
      worst = ratio <= worst ? worst : ratio;
    }
    if (!(worst <= 1)) continue;
    m.diagnosis.residual = worst;
    return std::move(m);
  }
  return {};
}

std::optional<Diagnosis> HiddenLosses::mistake(const SideValues& side, const RecordedCalls& calls,
                                               const Name& value, const LogicalTensor& gradient,
                                               const SideTensor& recorded) const {
  auto found = find_mistake(side, calls, value, gradient, recorded);
  return found ? std::optional(std::move(found->diagnosis)) : std::nullopt;
}

std::optional<Diagnosis> HiddenLosses::mistake_of_value(const SideValues& side, const RecordedCalls& calls,
                                                        const LogicalTensor& loss, double recorded) const {
  const auto known = recorded_.find(name_of(loss.id));
  if (known == recorded_.end()) return {};
  const Name& value = known->second.value;
  const LogicalTensor* gradient = side.find(assay::gradient_of(value, loss.id));
  if (gradient == nullptr) return {};
  auto found = find_mistake(side, calls, value, *gradient, *side.read(*gradient));
  if (!found) return {};
  const Loss& right = known->second.loss;
  Recorded other = known->second;
  other.loss = found->loss;
  other.loss.factor = right.factor;
  other.loss.reach = right.reach;
  other.loss.shares = right.shares;
  const auto made = value_of(other, side, calls, loss.id);
  if (!made) return {};
  const double allowed =
      made->expected.error[0] + unit_roundoff(loss.dtype) * std::abs(made->expected.values[0]);
  found->diagnosis.residual = std::abs(recorded - made->expected.values[0]) / allowed;
  return found->diagnosis.residual <= 1 ? std::optional(std::move(found->diagnosis)) : std::nullopt;
}

}  // namespace assay
