#include "assay/compare/pairs/exchanged_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace assay {
namespace {

// A module that is called in each micro-batch, and what it is given there.
using CallKey = std::tuple<std::int64_t, std::string, std::int64_t>;
using Shapes = std::map<std::int64_t, Shape>;
using Inputs = std::map<std::pair<CallKey, std::string>, Shapes>;

CallKey call_of(const Identity& id) {
  return {id.step, id.module, id.call};
}

Inputs inputs_of(const std::vector<LogicalTensor>& tensors) {
  Inputs inputs;
  for (const LogicalTensor& t : tensors) {
    if (t.id.phase == Phase::forward && t.id.slot == "input" && t.id.micro_batch >= 0 && is_float(t.dtype) &&
        t.shape.size() >= 2)
      inputs[{call_of(t.id), t.id.arg}].try_emplace(t.id.micro_batch, t.shape);
  }
  return inputs;
}

bool are_exchanged(const Shapes& a, const Shapes& b) {
  if (a.size() != b.size()) return false;
  std::int64_t rows = 0;  // more on one side than on the other
  bool differ = false;
  for (const auto& [micro_batch, shape] : a) {
    const auto there = b.find(micro_batch);
    if (there == b.end() ||
        !std::ranges::equal(shape.begin() + 1, shape.end(), there->second.begin() + 1, there->second.end()))
      return false;
    rows += shape[0] - there->second[0];
    differ = differ || shape[0] != there->second[0];
  }
  return differ && rows == 0;
}

}  // namespace

std::string leave_out_exchanged_rows(std::vector<LogicalTensor>& actual,
                                     std::vector<LogicalTensor>& reference) {
  const Inputs ours = inputs_of(actual), theirs = inputs_of(reference);
  std::set<CallKey> exchanged;
  for (const auto& [input, shapes] : ours) {
    const auto there = theirs.find(input);
    if (there != theirs.end() && are_exchanged(shapes, there->second)) exchanged.insert(input.first);
  }
  if (exchanged.empty()) return {};
  std::size_t left_out = 0;
  for (auto* side : {&actual, &reference}) {
    left_out += std::erase_if(*side, [&](const LogicalTensor& t) {
      return t.id.micro_batch >= 0 && exchanged.contains(call_of(t.id));
    });
  }
  return fmt::format(
      "{} tensors of {} and modules like it are left out: micro-batches exchange rows there, and what takes "
      "them "
      "back is compared",
      left_out, std::get<1>(*exchanged.begin()));
}

}  // namespace assay
