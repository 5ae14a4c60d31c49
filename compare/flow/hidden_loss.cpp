#include "assay/compare/flow/hidden_loss.h"

#include <algorithm>
#include <cmath>

#include "assay/compare/calls/call.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// The gradient of the operator's first input.
std::string gradient_name(const Operator& op) {
  const auto input = std::ranges::find(op.args, Role::input, &Arg::role);
  return "grad_" + std::string(input->name);
}

}  // namespace

std::optional<Expected> HiddenLosses::gradient_of(const Loss& loss, const SideValues& side,
                                                  const RecordedCalls& calls, const Name& value,
                                                  const Identity& frame) {
  const LogicalTensor* t = side.find(at(record_of(value), frame.step, frame.micro_batch));
  if (t == nullptr) return {};
  RecordedCall recorded = calls.of_value(*loss.op, *t);
  recorded.output = gradient_name(*loss.op);
  const Call call(side.dump(), {std::move(recorded)}, Tensor(t->dtype, t->shape), -1);
  const auto compared = call.compare(loss.variant);
  if (call.is_sampled() || !compared || compared->allowed.empty()) return {};
  Expected e;
  e.shape = t->shape;
  e.values = compared->golden.values();
  e.error = compared->allowed;
  e.roundoff = unit_roundoff(t->dtype);
  for (std::size_t i = 0; i < e.values.size(); ++i) {
    e.values[i] *= loss.factor;
    e.error[i] *= std::abs(loss.factor);
  }
  return e;
}

std::optional<Expected> HiddenLosses::gradient(const SideValues& side, const RecordedCalls& calls,
                                               const Name& value, const Identity& frame) const {
  const auto found = known_.find(value);
  return found == known_.end() ? std::nullopt : gradient_of(found->second, side, calls, value, frame);
}

bool HiddenLosses::fit(const SideValues& side, const RecordedCalls& calls, const Name& value,
                       const Identity& frame, const std::vector<double>& missing,
                       const std::vector<double>& allowed) {
  if (knows(value)) return false;
  for (const Operator* op : operators()) {
    if (!op->regularizes) continue;
    for (const CallVariant& variant : variants_of(*op)) {
      Loss loss{op, variant, 1};
      const auto unit = gradient_of(loss, side, calls, value, frame);
      if (!unit || unit->values.size() != missing.size()) continue;
      double product = 0, square = 0, bits = 0;
      for (std::size_t i = 0; i < missing.size(); ++i) {
        const double weight = allowed[i] > 0 ? 1 / (allowed[i] * allowed[i]) : 0;
        product += weight * missing[i] * unit->values[i];
        square += weight * unit->values[i] * unit->values[i];
      }
      if (!(square > 0)) continue;
      loss.factor = product / square;
      bool holds = true;
      for (std::size_t i = 0; holds && i < missing.size(); ++i) {
        const double given = loss.factor * unit->values[i],
                     error = allowed[i] + std::abs(loss.factor) * unit->error[i] + 1 / std::sqrt(square) * std::abs(unit->values[i]);
        holds = std::abs(missing[i] - given) <= error;
        if (std::abs(given) > error) bits += std::log2(std::abs(given) / error);
      }
      if (!holds || !proves(bits, bits_of_a_number)) continue;
      known_.emplace(value, loss);
      return true;
    }
  }
  return false;
}

}  // namespace assay
