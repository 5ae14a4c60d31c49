#include "assay/dumps/layout/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "assay/dumps/io/shrunk.h"
#include "assay/dumps/layout/assembly.h"
#include "assay/dumps/layout/replicas.h"
#include "assay/golden/error.h"

namespace assay {
namespace {

struct IdentityHash {
  std::size_t operator()(const Identity* id) const {
    // Unsigned: the numbers come from files, and a hash may wrap.
    std::size_t hash = 0;
    for (const std::int64_t number : {id->step, id->micro_batch, id->call})
      hash = hash * 31 + static_cast<std::size_t>(number);
    for (const std::string* text : {&id->module, &id->slot, &id->arg})
      hash = hash * 31 + std::hash<std::string>{}(*text);
    return hash * 4 + static_cast<std::size_t>(id->phase);
  }
};
struct SameIdentity {
  bool operator()(const Identity* a, const Identity* b) const { return *a == *b; }
};

// The elements that are the tensor's, without the padding that a record may have before, between and behind
// them: nobody says what padding holds. `pieces` then tell where they lie in the result.
Tensor without_padding(const Tensor& recorded, std::vector<Piece>& pieces) {
  std::int64_t held = 0;
  for (const Piece& piece : pieces) held += element_count(piece.box.shape);
  if (held == recorded.size()) return recorded;
  const std::size_t size = size_of(recorded.dtype());
  const auto flat = std::make_shared<const Tensor>(recorded.reshaped({recorded.size()}));
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<std::size_t>(held) * size);
  for (Piece& piece : pieces) {
    const Shape dense = dense_strides(piece.box.shape);
    const std::int64_t at = static_cast<std::int64_t>(bytes.size() / size);
    if (piece.strides == dense) {
      const auto run = flat->bytes().subspan(static_cast<std::size_t>(piece.at) * size,
                                             static_cast<std::size_t>(element_count(piece.box.shape)) * size);
      if (pieces.size() == 1) {  // in place
        piece.at = 0;
        return {recorded.dtype(), {held}, run, flat};
      }
      bytes.insert(bytes.end(), run.begin(), run.end());
    } else {
      const Tensor box = gather_view(*flat, piece.box.shape, piece.strides, piece.at);
      bytes.insert(bytes.end(), box.bytes().begin(), box.bytes().end());
    }
    piece.at = at;
    piece.strides = dense;
  }
  return {recorded.dtype(), {held}, std::move(bytes)};
}

// What is not cut over ranks needs no layout, and may be read window by window.
bool is_whole(const Record& record) {
  const auto is_copy = [](const Placement& p) { return p.kind == Placement::Kind::replicate; };
  return std::ranges::all_of(record.placements, is_copy) && !record.offsets && !record.flattened_range &&
         !record.cut && !record.rows && !record.row_numbers && record.shape == record.global_shape;
}

// The records that hold the same boxes: copies of each other, or addends of one sum.
struct Group {
  std::vector<Piece> pieces;
  std::vector<RankCopy> copies;
};

std::vector<Group> groups_of(const Dump& dump, const LogicalTensor& tensor) {
  std::map<std::vector<Box>, Group> groups;
  for (const std::size_t index : tensor.records) {
    const Record& record = dump.records[index];
    const std::vector<std::int64_t> rows =
        record.rows ? dump.read(*record.rows).indices() : std::vector<std::int64_t>();
    std::vector<Piece> pieces = pieces_of(record, dump.mesh, rows);
    std::vector<Box> boxes;
    for (const Piece& piece : pieces) boxes.push_back(piece.box);
    Group& group = groups[std::move(boxes)];
    for (const RankCopy& copy : group.copies) {
      if (copy.record->rank == record.rank && copy.record->mesh_coordinate == record.mesh_coordinate &&
          !pieces.empty())
        throw Error("{}: rank {} recorded it twice ({} and before): names must be unique",
                    to_string(tensor.id), record.rank, dump.location(index));
    }
    if (pieces.empty()) {  // nothing, or nothing but padding
      group.copies.push_back({&record, Tensor(record.dtype, {0})});
      continue;
    }
    Tensor values = without_padding(dump.read(index), pieces);
    group.pieces = std::move(pieces);
    group.copies.push_back({&record, std::move(values)});
  }
  std::vector<Group> result;
  for (auto& [boxes, group] : groups) result.push_back(std::move(group));
  return result;
}

std::vector<RankPart> parts_of(const std::vector<Group>& groups, const std::vector<bool>& summed_dims) {
  std::vector<RankPart> parts;
  for (const Group& group : groups)
    parts.push_back({group.pieces, addends_of(group.copies, summed_dims), group.copies.front().record->rank});
  return parts;
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
  std::unordered_map<const Identity*, std::size_t, IdentityHash, SameIdentity> known;
  known.reserve(dump.records.size());
  for (std::size_t i = 0; i < dump.records.size(); ++i) {
    const Record& record = dump.records[i];
    if (!record.unplaced.empty()) continue;
    const auto [found, is_new] = known.try_emplace(&record.id, tensors.size());
    if (is_new) {
      tensors.push_back({record.id,
                         record.seq,
                         record.op,
                         record.attributes,
                         record.count,
                         record.dtype,
                         shape_of(record),
                         record.within,
                         {i}});
      continue;
    }
    LogicalTensor& tensor = tensors[found->second];
    tensor.seq = std::min(tensor.seq, record.seq);
    if (tensor.op.empty()) tensor.op = record.op;
    if (tensor.attributes.empty()) tensor.attributes = record.attributes;
    if (!tensor.count) tensor.count = record.count;
    tensor.records.push_back(i);
  }
  // Numbers of different steps are not comparable on all recorders: some restart them.
  std::stable_sort(tensors.begin(), tensors.end(), [](const LogicalTensor& a, const LogicalTensor& b) {
    return std::tie(a.id.step, a.seq) < std::tie(b.id.step, b.seq);
  });
  tensors.shrink_to_fit();  // they stay as long as the comparison
  return tensors;
}

Merged merge(const Dump& dump, const LogicalTensor& tensor) {
  if (tensor.records.empty()) throw Error("{}: has no records to merge", to_string(tensor.id));
  if (tensor.records.size() == 1 && is_whole(dump.records[tensor.records.front()]))
    return {dump.source(tensor.records.front()), {}, {}};
  check_agreement(dump, tensor);
  // Replicas first, then partial sums, then shards: a copy of a partial sum must not be added twice.
  std::vector<Group> groups = groups_of(dump, tensor);
  for (const Group& group : groups) check_addends(group.copies, dump, tensor);
  Merged merged;
  std::vector<bool> disagreeing(std::max<std::size_t>(dump.mesh.dims.size(), 1), false);
  for (Group& group : groups) compare_replicas(group.copies, dump.mesh, merged.replicas, disagreeing);
  std::vector<RankPart> parts = parts_of(groups, {});
  check_cover(parts, tensor.shape, to_string(tensor.id));
  merged.tensor = assemble(tensor.dtype, tensor.shape, std::move(parts));
  if (!merged.replicas.empty())
    merged.sum_of_replicas = assemble(tensor.dtype, tensor.shape, parts_of(groups, disagreeing));
  return merged;
}

void check_not_shrunk(const Dump& dump, const LogicalTensor& tensor) {
  for (const std::size_t index : tensor.records) check_not_shrunk(dump.location(index));
}

}  // namespace assay
