#include "assay/compare/origin/elsewhere_recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace assay {
namespace {

// Each is read whole.
constexpr std::size_t most_of_an_operand = 12;

// "3 forward model.layers..mlp output y": modules of one kind, in all steps and micro-batches.
std::string kind_of(const Identity& id) {
  std::string module = id.module;
  std::erase_if(module, [](char c) { return c >= '0' && c <= '9'; });
  return fmt::format("{} {} {} {}", static_cast<int>(id.phase), module, id.slot, id.arg);
}

CauseParameters place_of(const Identity& other, const Identity& own) {
  CauseParameters which;
  if (other.step != own.step) which.step = other.step;
  if (other.micro_batch != own.micro_batch) which.micro_batch = other.micro_batch;
  if (other.call != own.call) which.call = other.call;
  if (other.module != own.module) which.tensor = to_string(other);
  return which;
}

}  // namespace

ElsewhereRecorded::ElsewhereRecorded(const Dump& dump, const std::vector<LogicalTensor>& tensors)
    : dump_(dump) {
  for (const LogicalTensor& t : tensors) {
    if (is_float(t.dtype)) alike_[kind_of(t.id)].push_back(&t);
  }
}

std::vector<const LogicalTensor*> ElsewhereRecorded::alike(const LogicalTensor& own) const {
  std::vector<const LogicalTensor*> others;
  const auto found = alike_.find(kind_of(own.id));
  if (found == alike_.end()) return others;
  for (const LogicalTensor* t : found->second) {
    const bool at_one_place = t->id.module == own.id.module || t->id.step == own.id.step;
    if (t != &own && t->shape == own.shape && at_one_place && without_bits(dump_, *t) == nullptr)
      others.push_back(t);
  }
  std::ranges::stable_sort(others, {}, [&](const LogicalTensor* t) {
    return std::tuple(t->id.module != own.id.module, std::abs(t->id.step - own.id.step),
                      std::abs(t->id.micro_batch - own.id.micro_batch), std::abs(t->id.call - own.id.call));
  });
  others.resize(std::min(others.size(), most_of_an_operand));
  return others;
}

std::vector<OtherOperands> ElsewhereRecorded::of(const RecordedCalls& calls,
                                                 const LogicalTensor& made) const {
  std::vector<OtherOperands> all;
  const std::vector<RecordedCall> made_by = calls.producers(made);
  if (made_by.size() != 1) return all;
  // Of a place: what was recorded there of forward, by the names of operands.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, OtherOperands> together;
  std::size_t of_forward = 0;
  for (const RecordedCall::Input& input : made_by.front().inputs) {
    const LogicalTensor& own = *input.tensor;
    if (!is_float(own.dtype)) continue;
    const bool moves = own.id.phase == Phase::forward && own.id.micro_batch >= 0;
    of_forward += moves ? 1 : 0;
    for (const LogicalTensor* other : alike(own)) {
      const Tensor values = merge(dump_, *other).tensor.whole();
      CauseParameters which = place_of(other->id, own.id);
      const Cause cause = which.tensor.empty() ? Cause::stale : Cause::other_tensor;
      if (moves && cause == Cause::stale) {
        OtherOperands& place = together[{other->id.step, other->id.micro_batch, other->id.call}];
        place.given.push_back({input.name, values});
        place.cause = cause;
        const std::string others = place.which.operand;
        place.which = which;
        place.which.operand = others.empty() ? input.name : fmt::format("{}, {}", others, input.name);
      }
      which.operand = input.name;
      all.push_back({{{input.name, values}}, cause, std::move(which)});
    }
  }
  for (auto& [place, operands] : together) {
    if (of_forward > 1 && operands.given.size() == of_forward) all.push_back(std::move(operands));
  }
  return all;
}

}  // namespace assay
