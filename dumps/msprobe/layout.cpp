#include "assay/dumps/msprobe/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "assay/dumps/layout/layout.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

constexpr std::int64_t max_ranks = 1'000'000;
constexpr std::size_t max_mesh_dims = 16;

// [[0, 1], [2, 3]]: the shape follows from the nesting, which must be a rectangle.
void read_mesh(const Json& item, std::size_t depth, RecordedLayout& layout, const std::string& where) {
  if (!item.is_array()) {
    if (depth != layout.mesh.shape.size()) throw Error("{}: device_mesh is not a rectangle", where);
    layout.ranks.push_back(item.integer(where + ": device_mesh"));
    return;
  }
  const auto& items = item.array(where);
  const auto extent = static_cast<std::int64_t>(items.size());
  if (depth == max_mesh_dims || items.empty()) throw Error("{}: device_mesh is not a rectangle", where);
  if (depth == layout.mesh.shape.size() && layout.ranks.empty()) layout.mesh.shape.push_back(extent);
  if (depth >= layout.mesh.shape.size() || layout.mesh.shape[depth] != extent)
    throw Error("{}: device_mesh is not a rectangle", where);
  for (const Json& inner : items) read_mesh(inner, depth + 1, layout, where);
}

void check_mesh(const RecordedLayout& layout, const std::string& where) {
  if (layout.ranks.empty()) return;
  std::set<std::int64_t> distinct;
  for (const std::int64_t rank : layout.ranks) {
    if (rank < 0 || rank >= max_ranks || !distinct.insert(rank).second)
      throw Error("{}: the mesh holds rank {}, expected each once and below {}", where, rank, max_ranks);
  }
  if (static_cast<std::int64_t>(layout.ranks.size()) != element_count(layout.mesh.shape)) {
    throw Error("{}: a mesh of shape {} with {} ranks", where, to_string(layout.mesh.shape),
                layout.ranks.size());
  }
}

void cut(RecordedLayout& layout, std::int64_t tensor_dim, std::size_t mesh_dim, const std::string& where) {
  const auto dims = static_cast<std::int64_t>(layout.cuts.size());
  const std::int64_t d = tensor_dim < 0 ? tensor_dim + dims : tensor_dim;
  if (d < 0 || d >= dims) throw Error("{}: Shard(dim={}) of {} dimensions", where, tensor_dim, dims);
  layout.placements[mesh_dim] = {Placement::Kind::shard, static_cast<int>(d)};
  layout.cuts[static_cast<std::size_t>(d)].push_back(mesh_dim);
}

void add_partial(RecordedLayout& layout, const std::string& reduction, std::size_t mesh_dim,
                 const std::string& where) {
  if (reduction != "sum") throw Error("{}: Partial({}), expected Partial(sum)", where, reduction);
  layout.placements[mesh_dim] = {Placement::Kind::partial, 0};
}

// [{"Shard": {"dim": 0}}, {"Replicate": {}}, {"Partial": {"reduce_op": "sum"}}]
void read_dtensor(const Json& leaf, RecordedLayout& layout, const std::string& where) {
  const Json& mesh = leaf.at("device_mesh", where);
  mesh.array(where + ": device_mesh");
  read_mesh(mesh, 0, layout, where);
  for (std::size_t m = 0; m < layout.mesh.shape.size(); ++m)
    layout.mesh.dims.push_back(fmt::format("mesh_dim_{}", m));
  const auto& words = leaf.at("placements", where).array(where + ": placements");
  if (words.size() != layout.mesh.shape.size()) {
    throw Error("{}: {} placements on a mesh of {} dimensions", where, words.size(),
                layout.mesh.shape.size());
  }
  layout.placements.resize(words.size());
  for (std::size_t m = 0; m < words.size(); ++m) {
    if (const Json* shard = words[m].find("Shard")) {
      cut(layout, shard->at("dim", where).integer(where), m, where);
    } else if (const Json* partial = words[m].find("Partial")) {
      add_partial(layout, partial->at("reduce_op", where).string(where), m, where);
    } else if (words[m].find("Replicate") == nullptr) {
      throw Error("{}: a placement is {}, expected Shard, Replicate or Partial", where, words[m].kind());
    }
  }
  for (const auto& cuts : layout.cuts) {
    // FSDP2 cuts what TP has cut already (_StridedShard); msprobe writes both as Shard.
    if (cuts.size() > 1)
      throw Error("{}: a dimension is cut by {} mesh dimensions, in an order that msprobe does not record",
                  where, cuts.size());
  }
}

// The numbers of a Tensor Map count the dimensions of the Device Matrix from its end; -1 cuts nothing, and a
// list cuts several times, its first entry outermost.
void read_tensor_map(const Json& map, RecordedLayout& layout, const std::string& where) {
  const auto& dims = map.array(where + ": Tensor Map");
  if (dims.size() != layout.cuts.size())
    throw Error("{}: a Tensor Map of {} entries for {} dimensions", where, dims.size(), layout.cuts.size());
  const auto mesh_dims = static_cast<std::int64_t>(layout.mesh.shape.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const auto cuts =
        dims[d].is_array() ? std::span<const Json>(dims[d].array(where)) : std::span<const Json>(&dims[d], 1);
    for (const Json& item : cuts) {
      const std::int64_t from_end = item.integer(where + ": Tensor Map");
      if (from_end == -1) continue;
      if (from_end < 0 || from_end >= mesh_dims)
        throw Error("{}: a Tensor Map with {} on a Device Matrix of {}", where, from_end, mesh_dims);
      const auto m = static_cast<std::size_t>(mesh_dims - 1 - from_end);
      if (layout.placements[m].kind != Placement::Kind::replicate)
        throw Error("{}: a Tensor Map that cuts twice by one device dimension", where);
      cut(layout, static_cast<std::int64_t>(d), m, where);
    }
  }
}

void read_mindspore(const Json& json, RecordedLayout& layout, const std::string& where) {
  const std::string named = where + ": layout";
  layout.mesh.shape = json.at("Device Matrix", named).shape(named);
  const std::size_t dims = layout.mesh.shape.size();
  if (dims == 0 || dims > max_mesh_dims || element_count(layout.mesh.shape) < 1 ||
      element_count(layout.mesh.shape) > max_ranks)
    throw Error("{}: a Device Matrix {}", named, to_string(layout.mesh.shape));
  layout.placements.resize(dims);
  if (const Json* names = json.find("Alias Name"); names != nullptr && names->is_array()) {
    for (const Json& name : names->array(named)) layout.mesh.dims.push_back(name.string(named));
  }
  if (layout.mesh.dims.size() != dims) {
    layout.mesh.dims.clear();
    for (std::size_t m = 0; m < dims; ++m) layout.mesh.dims.push_back(fmt::format("mesh_dim_{}", m));
  }
  const Json* interleaved = json.find("Interleaved");
  if (interleaved != nullptr && interleaved->is_string() && interleaved->string(named) == "Yes")
    throw Error("{}: interleaved: its parts lie in an order that the dump does not record", named);
  if (const Json* ranks = json.find("Rank List"); ranks != nullptr && !ranks->is_null()) {
    for (const Json& rank : ranks->array(named)) layout.ranks.push_back(rank.integer(named));
    if (layout.ranks.empty()) throw Error("{}: an empty Rank List", named);
  }
  read_tensor_map(json.at("Tensor Map", named), layout, named);
  const Json* partial = json.find("Partial");
  if (partial == nullptr || !partial->is_array()) return;
  const auto& reductions = partial->array(named);
  for (std::size_t m = 0; m < reductions.size(); ++m) {
    if (reductions[m].is_null()) continue;
    if (m >= dims || layout.placements[m].kind != Placement::Kind::replicate)
      throw Error("{}: Partial does not fit the Device Matrix and Tensor Map", named);
    add_partial(layout, reductions[m].string(named), m, named);
  }
}

std::int64_t size_of(const RecordedLayout& layout) {
  return element_count(layout.mesh.shape);
}

Shape coordinate_of(const RecordedLayout& layout, std::int64_t rank) {
  auto position = rank;
  if (!layout.ranks.empty()) position = std::ranges::find(layout.ranks, rank) - layout.ranks.begin();
  if (position >= size_of(layout)) throw Error("rank {} is not in the mesh of its tensor", rank);
  return unravel(position, layout.mesh.shape);
}

// Merging cuts in the order of the mesh dimensions, which is the order of `cuts` but for a Tensor Map that
// has another one.
bool cuts_in_mesh_order(const RecordedLayout& layout) {
  return std::ranges::all_of(layout.cuts, [](const auto& cuts) { return std::ranges::is_sorted(cuts); });
}

// The record's box on a mesh whose dimensions are put in the order of the cuts.
Shape offsets_of(Record record, const RecordedLayout& layout, const Shape& coordinate) {
  std::vector<std::size_t> order;
  for (const auto& cuts : layout.cuts) order.insert(order.end(), cuts.begin(), cuts.end());
  Mesh mesh;
  record.placements.clear();
  record.mesh_coordinate.clear();
  for (const std::size_t m : order) {
    mesh.dims.push_back(layout.mesh.dims[m]);
    mesh.shape.push_back(layout.mesh.shape[m]);
    record.placements.push_back(layout.placements[m]);
    record.mesh_coordinate.push_back(coordinate[m]);
  }
  return box_of(record, mesh).offsets;
}

using Member = std::pair<std::size_t, const RecordedLayout*>;  ///< a record of a tensor, and its layout

// The extent of a cut dimension is the sum over its parts. Where a part is not there the others stand for it,
// so that merging misses it and says so.
std::int64_t global_extent(const Dump& dump, std::span<const Member> parts, const std::vector<Shape>& at,
                           std::size_t d) {
  const RecordedLayout& layout = *parts.front().second;
  std::map<Shape, std::int64_t> extents;
  std::int64_t expected = 1, sum = 0, largest = 0;
  for (const std::size_t m : layout.cuts[d]) expected *= layout.mesh.shape[m];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Shape cell;
    for (const std::size_t m : layout.cuts[d]) cell.push_back(at[i][m]);
    const std::int64_t extent = dump.records[parts[i].first].shape[d];
    extents.try_emplace(cell, extent);
    largest = std::max(largest, extent);
  }
  bool too_large = false;
  for (const auto& [cell, extent] : extents) too_large |= __builtin_add_overflow(sum, extent, &sum);
  if (static_cast<std::int64_t>(extents.size()) != expected)
    too_large |= __builtin_mul_overflow(expected, largest, &sum);
  if (too_large) throw Error("its parts have more than 2^63 elements together");
  return sum;
}

// One tensor's parts on one mesh. They fit together or not at all.
void place_parts(Dump& dump, std::span<const Member> parts, bool one_mesh) {
  const RecordedLayout& layout = *parts.front().second;
  if (!one_mesh && std::ranges::count(layout.placements, Placement::Kind::partial, &Placement::kind) > 0)
    throw Error("a partial sum on a mesh that is not that of the whole run");
  std::vector<Shape> coordinates;
  for (const auto& [index, own] : parts)
    coordinates.push_back(coordinate_of(layout, dump.records[index].rank));
  std::vector<std::pair<std::size_t, std::int64_t>> extents;
  for (std::size_t d = 0; d < layout.cuts.size(); ++d) {
    if (!layout.cuts[d].empty()) extents.emplace_back(d, global_extent(dump, parts, coordinates, d));
  }
  std::vector<Record> placed;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Record record = dump.records[parts[i].first];
    for (const auto& [d, extent] : extents) record.global_shape[d] = extent;
    element_count(record.global_shape);
    if (one_mesh) record.placements = layout.placements;
    if (!one_mesh || !cuts_in_mesh_order(layout)) record.offsets = offsets_of(record, layout, coordinates[i]);
    placed.push_back(std::move(record));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) dump.records[parts[i].first] = std::move(placed[i]);
}

std::string words(const RecordedLayout& layout) {
  std::string ranks;  // the first few
  for (std::size_t i = 0; i < std::min<std::size_t>(layout.ranks.size(), 8); ++i)
    ranks += fmt::format("{}{}", i == 0 ? "" : ", ", layout.ranks[i]);
  if (layout.ranks.empty()) return to_string(layout.mesh.shape);
  return fmt::format("{} of ranks {}{}", to_string(layout.mesh.shape), ranks,
                     layout.ranks.size() > 8 ? ", .." : "");
}

bool same_mesh(const RecordedLayout& a, const RecordedLayout& b) {
  return a.mesh.dims == b.mesh.dims && a.mesh.shape == b.mesh.shape && a.ranks == b.ranks;
}

// Whether the mesh can be that of the whole dump: it has the ranks 0..n-1, and no record is of another.
bool holds_all_ranks(const RecordedLayout& layout, const Dump& dump) {
  const bool is_whole = layout.ranks.empty() ||
                        std::ranges::max(layout.ranks) == static_cast<std::int64_t>(layout.ranks.size()) - 1;
  return is_whole && dump.world_size <= size_of(layout);
}

}  // namespace

std::optional<RecordedLayout> parse_layout(const Json& leaf, std::size_t tensor_dims,
                                           std::string_view where) {
  const Json* mindspore = leaf.find("layout");
  if (leaf.find("device_mesh") == nullptr && (mindspore == nullptr || !mindspore->is_object()))
    return std::nullopt;
  RecordedLayout layout;
  layout.cuts.resize(tensor_dims);
  const std::string text(where);
  if (leaf.find("device_mesh") != nullptr) {
    read_dtensor(leaf, layout, text);
  } else {
    read_mindspore(*mindspore, layout, text);
  }
  check_mesh(layout, text);
  return layout;
}

void Layouts::add(std::size_t record, RecordedLayout layout) {
  of_.emplace_back(record, std::move(layout));
}

std::vector<std::pair<std::size_t, std::string>> Layouts::place(Dump& dump) const {
  std::vector<std::pair<std::size_t, std::string>> misfits;
  if (of_.empty()) return misfits;
  const RecordedLayout& first = of_.front().second;
  const auto other = std::ranges::find_if(of_, [&](const auto& o) { return !same_mesh(o.second, first); });
  const bool one_mesh = other == of_.end() && holds_all_ranks(first, dump);
  if (one_mesh) {
    dump.mesh = first.mesh;
    dump.world_size = static_cast<int>(size_of(first));
    std::map<int, Shape> coordinates;
    for (Record& record : dump.records) {
      Shape& coordinate = coordinates[record.rank];
      if (coordinate.empty()) coordinate = coordinate_of(first, record.rank);
      record.mesh_coordinate = coordinate;
    }
  } else {
    dump.notes.push_back(
        fmt::format("{}: tensors lie on different meshes or on a part of the ranks ({}{}); their shards are "
                    "put together, but "
                    "no mesh is taken for that of the run",
                    dump.path.string(), words(first), other == of_.end() ? "" : ", " + words(other->second)));
  }

  std::map<Identity, std::vector<Member>> tensors;
  for (const auto& [index, layout] : of_) tensors[dump.records[index].id].emplace_back(index, &layout);
  for (auto& [id, members] : tensors) {
    // The parts on one mesh make a whole; on another mesh the same tensor may lie once more.
    while (!members.empty()) {
      const RecordedLayout& layout = *members.front().second;
      const std::size_t dims = dump.records[members.front().first].shape.size();
      const auto rest = std::stable_partition(members.begin(), members.end(), [&](const Member& m) {
        return same_mesh(*m.second, layout) && m.second->placements == layout.placements &&
               m.second->cuts == layout.cuts && dump.records[m.first].shape.size() == dims;
      });
      const std::span<const Member> parts(members.begin(), rest);
      try {
        place_parts(dump, parts, one_mesh);
      } catch (const Error& problem) {
        for (const auto& [index, own] : parts) misfits.emplace_back(index, problem.what());
      }
      members.erase(members.begin(), rest);
    }
  }
  return misfits;
}

}  // namespace assay
