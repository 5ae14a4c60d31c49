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

// The rows of all ranks in all micro-batches, where each rank has rows of its own.
std::map<std::pair<CallKey, std::string>, std::int64_t> unplaced_rows(const Dump& dump) {
  std::map<std::pair<CallKey, std::string>, std::int64_t> rows;
  for (const Record& r : dump.records) {
    if (!r.unplaced.empty() && r.id.phase == Phase::forward && r.id.slot == "input" && is_float(r.dtype) &&
        r.shape.size() >= 2)
      rows[{call_of(r.id), r.id.arg}] += r.shape[0];
  }
  return rows;
}

void add_unplaced(const Dump& dump, const Inputs& own, const Inputs& other, std::set<CallKey>& exchanged) {
  for (const auto& [input, rows] : unplaced_rows(dump)) {
    const auto there = other.find(input);
    if (own.contains(input) || there == other.end() || there->second.size() < 2) continue;
    std::int64_t left = rows;
    for (const auto& [micro_batch, shape] : there->second) left -= shape[0];
    if (left == 0) exchanged.insert(input.first);
  }
}

}  // namespace

std::string leave_out_exchanged_rows(const Dump& actual_dump, std::vector<LogicalTensor>& actual,
                                     const Dump& reference_dump, std::vector<LogicalTensor>& reference) {
  if (actual_dump.world_size == 1 && reference_dump.world_size == 1) return {};  // nobody to exchange with
  const Inputs ours = inputs_of(actual), theirs = inputs_of(reference);
  std::set<CallKey> exchanged;
  for (const auto& [input, shapes] : ours) {
    const auto there = theirs.find(input);
    if (there != theirs.end() && are_exchanged(shapes, there->second)) exchanged.insert(input.first);
  }
  add_unplaced(actual_dump, ours, theirs, exchanged);
  add_unplaced(reference_dump, theirs, ours, exchanged);
  if (exchanged.empty()) return {};
  std::size_t left_out = 0;
  for (auto* side : {&actual, &reference}) {
    left_out += std::erase_if(*side, [&](const LogicalTensor& t) {
      return t.id.micro_batch >= 0 && exchanged.contains(call_of(t.id));
    });
  }
  return fmt::format(
      "{} tensors of {} and modules like it are left out: ranks exchange rows of their micro-batches there, "
      "and what takes them back is compared",
      left_out, std::get<1>(*exchanged.begin()));
}

}  // namespace assay
