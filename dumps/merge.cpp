#include "assay/dumps/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "assay/dumps/claim.h"
#include "assay/dumps/layout.h"
#include "assay/dumps/replicas.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

struct IdentityHash {
  std::size_t operator()(const Identity& id) const {
    // Unsigned: the numbers come from files, and a hash may wrap.
    std::size_t hash = 0;
    for (const std::int64_t number : {id.step, id.micro_batch, id.call})
      hash = hash * 31 + static_cast<std::size_t>(number);
    for (const std::string* text : {&id.module, &id.slot, &id.arg})
      hash = hash * 31 + std::hash<std::string>{}(*text);
    return hash * 4 + static_cast<std::size_t>(id.phase);
  }
};

void check_agreement(const Dump& dump, const LogicalTensor& tensor) {
  const Record& first = dump.records[tensor.records.front()];
  std::set<int> ranks;
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    if (record.dtype != first.dtype || record.global_shape != first.global_shape ||
        record.placements != first.placements) {
      throw Error("{}: rank {} says {} of global shape {}, rank {} says {} of {}{}", to_string(tensor.id),
                  first.rank, name(first.dtype), to_string(first.global_shape), record.rank,
                  name(record.dtype), to_string(record.global_shape),
                  record.placements != first.placements ? ", and their placements differ" : "");
    }
    if (!ranks.insert(record.rank).second) {
      throw Error("{}: rank {} recorded it twice ({} and before): names must be unique", to_string(tensor.id),
                  record.rank, dump.location(index));
    }
  }
}

// A tensor that ends where it starts has no parts to put together.
bool is_whole(const Record& record) {
  return record.shape == record.global_shape;
}

// The ranks that hold one box must between them have every coordinate of the partial mesh dimensions. A copy
// will do: of equal addends one is enough.
void check_addends(const std::vector<const Record*>& records, const Dump& dump, const LogicalTensor& tensor) {
  const Record& first = *records.front();
  const Mesh& mesh = dump.mesh;
  const auto has_kind = [&](std::size_t m, Placement::Kind kind) {
    return m < first.placements.size() && first.placements[m].kind == kind;
  };
  std::vector<std::size_t> partial_dims;
  for (std::size_t m = 0; m < first.placements.size(); ++m) {
    if (has_kind(m, Placement::Kind::partial)) partial_dims.push_back(m);
  }
  if (partial_dims.empty()) return;
  std::set<Shape> found;
  for (const Record* record : records) {
    if (record->mesh_coordinate.size() != mesh.dims.size() || mesh.shape.size() != mesh.dims.size() ||
        partial_dims.back() >= mesh.dims.size()) {
      throw Error("{}: rank {} holds a partial sum without a place in the mesh", to_string(tensor.id),
                  record->rank);
    }
    Shape at;
    for (const std::size_t m : partial_dims) at.push_back(record->mesh_coordinate[m]);
    found.insert(std::move(at));
  }
  Shape extents;
  for (const std::size_t m : partial_dims) extents.push_back(mesh.shape[m]);
  const std::int64_t expected = element_count(extents), have = static_cast<std::int64_t>(found.size());
  if (have == expected) return;

  std::int64_t gap = 0;
  while (found.contains(unravel(gap, extents))) ++gap;
  const Shape missing = unravel(gap, extents);
  Shape place = first.mesh_coordinate;
  for (std::size_t i = 0; i < missing.size(); ++i) place[partial_dims[i]] = missing[i];
  std::string words;
  for (std::size_t m = 0; m < place.size(); ++m) {
    if (!has_kind(m, Placement::Kind::partial) && !has_kind(m, Placement::Kind::shard)) continue;
    words += fmt::format("{}{}={}", words.empty() ? "" : ", ", mesh.dims[m], place[m]);
  }
  // Which rank that is, another of its records says.
  for (const Record& record : dump.records) {
    if (record.mesh_coordinate != place) continue;
    words += fmt::format(" (rank {})", record.rank);
    break;
  }
  throw Error("{}: the addend of {} is missing{}; {} of {} partial sums are recorded", to_string(tensor.id),
              words, expected - have == 1 ? "" : fmt::format(", and {} more", expected - have - 1), have,
              expected);
}

struct Part {
  Box box;
  Tensor tensor;
  int rank = 0;
};

void copy_into(std::vector<std::byte>& whole, const Shape& global, const Part& part, std::size_t element) {
  const std::size_t rank = global.size();
  if (part.box.empty()) return;
  // Trailing dimensions that the box covers whole are one run of bytes, with the dimension before them.
  std::size_t run_dim = rank;
  std::size_t run = element;
  while (run_dim > 0) {
    --run_dim;
    run *= static_cast<std::size_t>(part.box.shape[run_dim]);
    if (part.box.shape[run_dim] != global[run_dim]) break;
  }
  Shape index(run_dim, 0);
  const std::byte* source = part.tensor.bytes().data();
  while (true) {
    std::size_t target = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t at = part.box.offsets[d] + (d < run_dim ? index[d] : 0);
      target = target * static_cast<std::size_t>(global[d]) + static_cast<std::size_t>(at);
    }
    std::memcpy(whole.data() + target * element, source, run);
    source += run;
    std::size_t d = run_dim;
    while (d > 0 && ++index[d - 1] == part.box.shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

bool overlap(const Box& a, const Box& b) {
  if (a.empty() || b.empty()) return false;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offsets[d] + a.shape[d] <= b.offsets[d] || b.offsets[d] + b.shape[d] <= a.offsets[d]) return false;
  }
  return true;
}

// Boxes sorted by their first index can meet only while the next one starts before the current one ends.
void check_cover(const std::vector<Part>& parts, const LogicalTensor& tensor) {
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    covered += element_count(parts[i].box.shape);
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      if (!tensor.shape.empty() && parts[j].box.offsets[0] >= parts[i].box.offsets[0] + parts[i].box.shape[0])
        break;
      if (!overlap(parts[i].box, parts[j].box)) continue;
      throw Error("{}: rank {} holds {} and rank {} holds {}: they overlap", to_string(tensor.id),
                  parts[i].rank, to_string(parts[i].box), parts[j].rank, to_string(parts[j].box));
    }
  }
  if (covered != element_count(tensor.shape)) {
    std::string held;
    for (const Part& part : parts)
      held += fmt::format("{}rank {} {}", held.empty() ? "" : ", ", part.rank, to_string(part.box));
    throw Error("{}: the parts hold {} of {} elements of {}; a rank or a part is missing ({})",
                to_string(tensor.id), covered, element_count(tensor.shape), to_string(tensor.shape), held);
  }
}

Tensor assemble(std::vector<Part> parts, const LogicalTensor& tensor) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.box < b.box; });
  check_cover(parts, tensor);
  for (const Part& part : parts) {
    if (part.box.shape == tensor.shape) return part.tensor;
  }
  const std::size_t element = size_of(tensor.dtype);
  // Exactly covered by tensors that exist, so this is no larger than what was read.
  std::vector<std::byte> bytes(static_cast<std::size_t>(element_count(tensor.shape)) * element);
  for (const Part& part : parts) copy_into(bytes, tensor.shape, part, element);
  return {tensor.dtype, tensor.shape, std::move(bytes)};
}

Merged merge_parts(const Dump& dump, const LogicalTensor& tensor) {
  // Replicas first, then partial sums, then shards: a copy of a partial sum must not be added twice.
  std::map<Box, std::vector<Copy>> boxes;
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    boxes[box_of(record, dump.mesh)].push_back({&record, dump.read(index)});
  }
  for (const auto& [box, copies] : boxes) {
    std::vector<const Record*> records;
    for (const Copy& copy : copies) records.push_back(copy.record);
    check_addends(records, dump, tensor);
  }
  Merged merged;
  std::vector<bool> disagreeing(std::max<std::size_t>(dump.mesh.dims.size(), 1), false);
  for (auto& [box, copies] : boxes) compare_replicas(copies, dump.mesh, merged.replicas, disagreeing);
  std::vector<Part> parts;
  for (auto& [box, copies] : boxes)
    parts.push_back({box, sum_of_partials(copies), copies.front().record->rank});
  merged.tensor = assemble(std::move(parts), tensor);
  if (!merged.replicas.empty()) {
    parts.clear();
    for (auto& [box, copies] : boxes)
      parts.push_back({box, sum_over(copies, disagreeing), copies.front().record->rank});
    merged.sum_of_replicas = assemble(std::move(parts), tensor);
  }
  return merged;
}

}  // namespace

const Record* without_bits(const Dump& dump, const LogicalTensor& tensor) {
  for (const std::size_t index : tensor.records) {
    if (!dump.records[index].has_bits) return &dump.records[index];
  }
  return nullptr;
}

std::vector<LogicalTensor> logical_tensors(const Dump& dump) {
  std::vector<LogicalTensor> tensors;
  std::unordered_map<Identity, std::size_t, IdentityHash> known;
  known.reserve(dump.records.size());
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    const auto [found, is_new] = known.try_emplace(record.id, tensors.size());
    if (is_new) {
      tensors.push_back(
          {record.id, record.seq, record.op, record.count, record.dtype, record.global_shape, {i}});
      continue;
    }
    LogicalTensor& tensor = tensors[found->second];
    tensor.seq = std::min(tensor.seq, record.seq);
    if (tensor.op.empty()) tensor.op = record.op;
    if (!tensor.count) tensor.count = record.count;
    tensor.records.push_back(i);
  }
  // Numbers of different steps are not comparable on all recorders: some restart them.
  std::stable_sort(tensors.begin(), tensors.end(), [](const LogicalTensor& a, const LogicalTensor& b) {
    return std::tie(a.id.step, a.seq) < std::tie(b.id.step, b.seq);
  });
  return tensors;
}

Merged merge(const Dump& dump, const LogicalTensor& tensor) {
  if (tensor.records.empty()) throw Error("{}: has no records to merge", to_string(tensor.id));
  check_agreement(dump, tensor);
  if (tensor.records.size() == 1 && is_whole(dump.records[tensor.records[0]])) {
    check_addends({&dump.records[tensor.records[0]]}, dump, tensor);
    box_of(dump.records[tensor.records[0]], dump.mesh);
    return {dump.read(tensor.records[0]), {}, {}};
  }

  const std::uint64_t bytes = static_cast<std::uint64_t>(element_count(tensor.shape)) * size_of(tensor.dtype);
  return within_memory(bytes, to_string(tensor.id), [&] { return merge_parts(dump, tensor); });
}

}  // namespace assay
