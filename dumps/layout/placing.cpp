#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "assay/dumps/layout/layout_rules.h"

namespace assay {
namespace {

using Records = std::map<Identity, std::vector<std::size_t>>;

Records unplaced(const Dump& dump) {
  Records tensors;
  for (std::size_t i = 0; i < dump.records.size(); ++i)
    if (!dump.records[i].unplaced.empty()) tensors[dump.records[i].id];
  if (tensors.empty()) return tensors;
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const auto found = tensors.find(dump.records[i].id);
    if (found != tensors.end()) found->second.push_back(i);
  }
  return tensors;
}

std::int64_t parts_of(const Dump& dump, const Record& record) {
  std::int64_t parts = 1;
  for (const int dim : record.unplaced) parts *= dump.mesh.shape.at(static_cast<std::size_t>(dim));
  return parts;
}

// The dimension that all parts together make as long as it is in the whole.
std::optional<int> cut_dimension(const Shape& part, const Shape& whole, std::int64_t parts) {
  if (part.size() != whole.size()) return {};
  std::optional<int> found;
  for (std::size_t d = 0; d < part.size(); ++d) {
    if (part[d] == whole[d]) continue;
    if (found || part[d] * parts != whole[d]) return {};
    found = static_cast<int>(d);
  }
  return found;
}

void shard(Record& record, int dim, const Shape& whole) {
  for (const int axis : record.unplaced) {
    Placement& placement = record.placements.at(static_cast<std::size_t>(axis));
    placement = {.kind = Placement::Kind::shard, .dim = dim};
  }
  record.global_shape = whole;
  record.unplaced.clear();
}

// Whether all parts have the shape and the axes of the first: the size of one is that of all.
bool are_alike(const Dump& dump, const std::vector<std::size_t>& records) {
  const Record& first = dump.records[records.front()];
  return std::ranges::all_of(records, [&](std::size_t i) {
    const Record& r = dump.records[i];
    return r.shape == first.shape && r.unplaced == first.unplaced && r.shape == r.global_shape;
  });
}

void place_by(Dump& dump, const Records& tensors, const Dump& other) {
  std::map<Identity, Shape> wholes;
  for (const Record& r : other.records)
    if (r.unplaced.empty() && tensors.contains(r.id))
      wholes.try_emplace(r.id, r.cut.value_or(r.global_shape));
  for (const auto& [id, records] : tensors) {
    const auto whole = wholes.find(id);
    if (whole == wholes.end() || !are_alike(dump, records)) continue;
    const Record& first = dump.records[records.front()];
    const auto dim = cut_dimension(first.shape, whole->second, parts_of(dump, first));
    if (!dim && first.shape != whole->second) continue;
    for (const std::size_t i : records) {
      Record& r = dump.records[i];
      if (dim) {
        shard(r, *dim, whole->second);
      } else {
        // Each rank's own loss is an addend; of what ranks should share, parameters and gradients, it is a
        // difference.
        const bool is_addend = r.shape.empty() && id.phase == Phase::forward && id.slot != "param";
        for (const int axis : is_addend ? r.unplaced : std::vector<int>())
          r.placements.at(static_cast<std::size_t>(axis)) = {.kind = Placement::Kind::partial};
        r.unplaced.clear();
      }
    }
  }
}

// Parts of both sides, one behind the other in the order of their ranks.
void place_alike(Dump& a, const Records& of_a, Dump& b, const Records& of_b) {
  if (a.mesh.dims != b.mesh.dims || a.mesh.shape != b.mesh.shape) return;
  for (const auto& [id, records] : of_a) {
    const auto there = of_b.find(id);
    if (there == of_b.end() || !are_alike(a, records) || !are_alike(b, there->second)) continue;
    const Record& first = a.records[records.front()];
    const Record& other = b.records[there->second.front()];
    if (first.unplaced.empty() || first.unplaced != other.unplaced || first.shape != other.shape ||
        first.shape.empty())
      continue;
    Shape whole = first.shape;
    whole[0] *= parts_of(a, first);
    for (const std::size_t i : records) shard(a.records[i], 0, whole);
    for (const std::size_t i : there->second) shard(b.records[i], 0, whole);
  }
}

// logical_tensors leaves them out.
void note_unplaced(Dump& dump) {
  const Records tensors = unplaced(dump);
  if (tensors.empty()) return;
  const Record& first = dump.records[tensors.begin()->second.front()];
  std::vector<std::string> axes;
  for (const int axis : first.unplaced) axes.push_back(dump.mesh.dims.at(static_cast<std::size_t>(axis)));
  dump.left_out.push_back(fmt::format(
      "{}: {}: {} hold different parts of {}, and nothing says which; say it with a [[layout]] rule",
      dump.path.string(), to_string(first.id), fmt::format("ranks over {}", fmt::join(axes, ", ")),
      tensors.size() == 1 ? "it" : fmt::format("it and of {} other tensors", tensors.size() - 1)));
}

}  // namespace

void apply_layout(Dump& dump, const LayoutRules& rules) {
  cut_by_layout(dump, rules);
  note_unplaced(dump);
}

void apply_layouts(Dump& actual, Dump& reference, const LayoutRules& rules) {
  for (Dump* dump : {&actual, &reference}) cut_by_layout(*dump, rules);
  const Records of_actual = unplaced(actual), of_reference = unplaced(reference);
  place_by(actual, of_actual, reference);
  place_by(reference, of_reference, actual);
  place_alike(actual, of_actual, reference, of_reference);
  for (Dump* dump : {&actual, &reference}) note_unplaced(*dump);
}

}  // namespace assay
