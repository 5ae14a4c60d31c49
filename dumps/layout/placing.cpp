#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "assay/dumps/layout/calls_of_step.h"
#include "assay/dumps/layout/copied_rows.h"
#include "assay/dumps/layout/fused_weights.h"
#include "assay/dumps/layout/layout_rules.h"
#include "assay/dumps/layout/micro_batches.h"
#include "assay/dumps/layout/placed_parts.h"

namespace assay {
namespace {

PartRecords unplaced(const Dump& dump) {
  PartRecords tensors;
  for (std::size_t i = 0; i < dump.records.size(); ++i)
    if (!dump.records[i].unplaced.empty()) tensors[dump.records[i].id];
  if (tensors.empty()) return tensors;
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const auto found = tensors.find(dump.records[i].id);
    if (found != tensors.end()) found->second.push_back(i);
  }
  return tensors;
}

// What no rank can say: it lies in several micro-batches that are one on the other side.
bool is_of_micro_batches(const Dump& dump, const Record& record) {
  return std::ranges::any_of(record.unplaced, [&](int axis) {
    return dump.mesh.dims.at(static_cast<std::size_t>(axis)) == micro_batch_dim;
  });
}

PartRecords unplaced_ranks(const Dump& dump) {
  PartRecords tensors = unplaced(dump);
  std::erase_if(tensors,
                [&](const auto& one) { return is_of_micro_batches(dump, dump.records[one.second.front()]); });
  return tensors;
}

// Who holds parts of which nothing says the place, and what to do about it.
struct Holders {
  std::string who, advice;
};
Holders holders_of(const Dump& dump, const Record& record) {
  if (is_of_micro_batches(dump, record))
    return {"micro-batches that are one on the other side", "compare runs with micro-batches of one size"};
  std::vector<std::string> axes;
  for (const int axis : record.unplaced) axes.push_back(dump.mesh.dims.at(static_cast<std::size_t>(axis)));
  return {fmt::format("ranks over {}", fmt::join(axes, ", ")), "say it with a [[layout]] rule"};
}

// logical_tensors leaves them out. Those that the other side has are said to be missing, each by itself.
void note_unplaced(Dump& dump, const Dump* other) {
  PartRecords tensors = unplaced(dump);
  if (other != nullptr && !tensors.empty()) {
    for (const Record& r : other->records)
      if (r.unplaced.empty()) tensors.erase(r.id);
  }
  if (tensors.empty()) return;
  const Record& first = dump.records[tensors.begin()->second.front()];
  const Holders holders = holders_of(dump, first);
  dump.left_out.push_back(
      fmt::format("{}: {}: {} hold different parts of {}, and nothing says which; {}", dump.path.string(),
                  to_string(first.id), holders.who,
                  tensors.size() == 1 ? "it" : fmt::format("it and of {} other tensors", tensors.size() - 1),
                  holders.advice));
}

}  // namespace

std::map<Identity, std::string> why_unplaced(const Dump& dump) {
  std::map<Identity, std::string> why;
  for (const auto& [id, records] : unplaced(dump)) {
    const Holders holders = holders_of(dump, dump.records[records.front()]);
    why[id] = fmt::format("{} of {} hold different parts of it, and nothing says which; {}", holders.who,
                          dump.path.string(), holders.advice);
  }
  return why;
}

void apply_layout(Dump& dump, const LayoutRules& rules) {
  cut_by_layout(dump, rules);
  note_unplaced(dump, nullptr);
}

void apply_layouts(Dump& actual, Dump& reference, const LayoutRules& rules) {
  for (Dump* dump : {&actual, &reference}) cut_by_layout(*dump, rules);
  number_calls_of_step(actual, reference);
  join_micro_batches(actual, reference);
  const PartRecords of_actual = unplaced_ranks(actual), of_reference = unplaced_ranks(reference);
  if (!of_actual.empty()) place_by_other(actual, of_actual, reference);
  if (!of_reference.empty()) place_by_other(reference, of_reference, actual);
  number_copied_rows(actual, of_actual, reference);
  number_copied_rows(reference, of_reference, actual);
  place_alike(actual, of_actual, reference, of_reference);
  note_unplaced(actual, &reference);
  note_unplaced(reference, &actual);
}

void apply_layouts(std::unique_ptr<Dump>& actual, std::unique_ptr<Dump>& reference,
                   const LayoutRules& rules) {
  fuse_weights(actual, reference);
  apply_layouts(*actual, *reference, rules);
}

}  // namespace assay
