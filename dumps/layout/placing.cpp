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

// Over the axes that nobody placed: where it lies among its neighbours there.
std::vector<std::int64_t> place_of(const Record& record) {
  std::vector<std::int64_t> place;
  for (const int axis : record.unplaced)
    place.push_back(record.mesh_coordinate.at(static_cast<std::size_t>(axis)));
  return place;
}

// Parts of different lengths, such as the tokens of each rank's experts, one behind the other in the order of
// their ranks, where together they are as long as the whole.
void place_uneven(Dump& dump, const std::vector<std::size_t>& records, const Shape& whole) {
  std::map<std::vector<std::int64_t>, Shape> shapes;
  const Record& first = dump.records[records.front()];
  for (const std::size_t i : records) {
    const Record& r = dump.records[i];
    const bool is_box = r.unplaced == first.unplaced && r.shape == r.global_shape && !r.flattened_range;
    if (!is_box || r.shape.size() != whole.size() ||
        shapes.try_emplace(place_of(r), r.shape).first->second != r.shape)
      return;
  }
  std::optional<std::size_t> cut;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (std::ranges::all_of(shapes, [&](const auto& part) { return part.second[d] == whole[d]; })) continue;
    std::int64_t length = 0;
    for (const auto& [place, shape] : shapes) length += shape[d];
    if (cut || length != whole[d]) return;
    cut = d;
  }
  if (!cut || std::ssize(shapes) != parts_of(dump, first)) return;
  std::map<std::vector<std::int64_t>, std::int64_t> begins;
  std::int64_t begin = 0;
  for (const auto& [place, shape] : shapes) {
    begins[place] = begin;
    begin += shape[*cut];
  }
  for (const std::size_t i : records) {
    Record& r = dump.records[i];
    r.offsets = Shape(whole.size(), 0);
    (*r.offsets)[*cut] = begins.at(place_of(r));
    shard(r, static_cast<int>(*cut), whole);
  }
}

void place_by(Dump& dump, const Records& tensors, const Dump& other) {
  std::map<Identity, Shape> wholes;
  for (const Record& r : other.records)
    if (r.unplaced.empty() && tensors.contains(r.id))
      wholes.try_emplace(r.id, r.cut.value_or(r.global_shape));
  for (const auto& [id, records] : tensors) {
    const auto whole = wholes.find(id);
    if (whole == wholes.end()) continue;
    if (!are_alike(dump, records)) {
      place_uneven(dump, records, whole->second);
      continue;
    }
    const Record& first = dump.records[records.front()];
    const auto dim = cut_dimension(first.shape, whole->second, parts_of(dump, first));
    // What shows how a module makes its results may be each rank's own: counts of its tokens.
    if (!dim && (first.within || first.shape != whole->second)) continue;
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

std::string axes_of(const Dump& dump, const Record& record) {
  std::vector<std::string> axes;
  for (const int axis : record.unplaced) axes.push_back(dump.mesh.dims.at(static_cast<std::size_t>(axis)));
  return fmt::format("ranks over {}", fmt::join(axes, ", "));
}

// logical_tensors leaves them out. Those that the other side has are said to be missing, each by itself.
void note_unplaced(Dump& dump, const Dump* other) {
  Records tensors = unplaced(dump);
  if (other != nullptr && !tensors.empty()) {
    for (const Record& r : other->records)
      if (r.unplaced.empty()) tensors.erase(r.id);
  }
  if (tensors.empty()) return;
  const Record& first = dump.records[tensors.begin()->second.front()];
  dump.left_out.push_back(fmt::format(
      "{}: {}: {} hold different parts of {}, and nothing says which; say it with a [[layout]] rule",
      dump.path.string(), to_string(first.id), axes_of(dump, first),
      tensors.size() == 1 ? "it" : fmt::format("it and of {} other tensors", tensors.size() - 1)));
}

}  // namespace

std::map<Identity, std::string> why_unplaced(const Dump& dump) {
  std::map<Identity, std::string> why;
  for (const auto& [id, records] : unplaced(dump)) {
    why[id] = fmt::format(
        "{} of {} hold different parts of it, and nothing says which; say it with a [[layout]] rule",
        axes_of(dump, dump.records[records.front()]), dump.path.string());
  }
  return why;
}

void apply_layout(Dump& dump, const LayoutRules& rules) {
  cut_by_layout(dump, rules);
  note_unplaced(dump, nullptr);
}

void apply_layouts(Dump& actual, Dump& reference, const LayoutRules& rules) {
  for (Dump* dump : {&actual, &reference}) cut_by_layout(*dump, rules);
  const Records of_actual = unplaced(actual), of_reference = unplaced(reference);
  place_by(actual, of_actual, reference);
  place_by(reference, of_reference, actual);
  place_alike(actual, of_actual, reference, of_reference);
  note_unplaced(actual, &reference);
  note_unplaced(reference, &actual);
}

}  // namespace assay
