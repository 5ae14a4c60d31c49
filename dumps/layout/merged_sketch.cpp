#include "assay/dumps/layout/merged_sketch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "assay/dumps/layout/assembly.h"
#include "assay/dumps/layout/layout.h"
#include "assay/dumps/layout/replicas.h"
#include "assay/golden/error.h"
#include "assay/golden/sketcher.h"

namespace assay {
namespace {

// The elements of a piece, as they are read: runs along the last dimension lie together.
TensorSource elements_of(const TensorSource& flat, const Piece& piece) {
  const Shape& shape = piece.box.shape;
  if (piece.strides == dense_strides(shape))
    return {flat.dtype(), shape, [flat, at = piece.at](std::int64_t begin, std::int64_t count) {
              return flat.window(at + begin, count);
            }};
  return {flat.dtype(), shape, [flat, piece](std::int64_t begin, std::span<std::byte> out) {
            const Shape& extents = piece.box.shape;
            const std::int64_t width = extents.back();
            const std::size_t element = size_of(flat.dtype());
            const auto count = static_cast<std::int64_t>(out.size() / element);
            for (std::int64_t done = 0; done < count;) {
              const Shape index = unravel(begin + done, extents);
              std::int64_t at = piece.at;
              for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * piece.strides[d];
              const std::int64_t run = std::min(count - done, width - index.back());
              const Tensor values = flat.window(at, run);
              std::memcpy(out.data() + static_cast<std::size_t>(done) * element, values.bytes().data(),
                          values.bytes().size());
              done += run;
            }
          }};
}

// What one rank recorded of a tensor.
struct RankSketch {
  const Record* record;
  Sketch sketch;
};

// The records that hold the same boxes: copies of each other, or addends of one sum.
struct SketchGroup {
  std::vector<Piece> pieces;
  std::vector<RankCopy> copies;  ///< their tensors are what copies have in common
};

// By which copies are compared: the fingerprint, or else the values.
Tensor mark_of(const Sketch& s) {
  if (!s.fingerprint) return {{s.spec.size()}, std::span<const double>(s.values)};
  std::vector<std::byte> bytes(sizeof *s.fingerprint);
  std::memcpy(bytes.data(), &*s.fingerprint, bytes.size());
  return {DType::uint64, {1}, std::move(bytes)};
}

class SketchMerge {
 public:
  SketchMerge(const Dump& dump, const LogicalTensor& tensor) : dump_(dump), tensor_(tensor) {
    check_agreement(dump, tensor);
    for (const std::size_t index : tensor.records) add(index);
  }

  MergedSketch run() {
    std::vector<bool> disagreeing(std::max<std::size_t>(dump_.mesh.dims.size(), 1), false);
    MergedSketch merged;
    std::vector<RankPart> parts;
    for (auto& [boxes, group] : groups_) {
      check_addends(group.copies, dump_, tensor_);
      compare_replicas(group.copies, dump_.mesh, merged.replicas, disagreeing);
      parts.push_back({group.pieces, {}, group.copies.front().record->rank});
    }
    check_cover(parts, tensor_.shape, to_string(tensor_.id));
    merged.sketch = sum({});
    if (!merged.replicas.empty()) merged.sum_of_replicas = sum(disagreeing);
    return merged;
  }

 private:
  void add(std::size_t index) {
    const Record& record = dump_.records[index];
    Sketch sketch = dump_.read_sketch(index);
    if (sketch.shape != tensor_.shape)
      throw Error(
          "{}: rank {} sketched it as a part of {}, but it is one of {}; expected the same layout as then",
          to_string(tensor_.id), record.rank, to_string(sketch.shape), to_string(tensor_.shape));
    std::vector<Piece> pieces = pieces_of(record, dump_.mesh);
    std::vector<Box> boxes;
    for (const Piece& piece : pieces) boxes.push_back(piece.box);
    SketchGroup& group = groups_[std::move(boxes)];
    for (const RankCopy& copy : group.copies) {
      if (copy.record->rank == record.rank && copy.record->mesh_coordinate == record.mesh_coordinate &&
          !pieces.empty())
        throw Error("{}: rank {} recorded it twice ({} and before): names must be unique",
                    to_string(tensor_.id), record.rank, dump_.location(index));
    }
    group.copies.push_back({&record, mark_of(sketch)});
    group.pieces = std::move(pieces);
    sketches_.emplace(&record, std::move(sketch));
  }

  // Over the groups, each the sum of its addends.
  Sketch sum(const std::vector<bool>& also) const {
    std::optional<Sketch> whole;
    for (const auto& [boxes, group] : groups_) {
      std::optional<Sketch> share;
      for (const RankCopy* copy : addends_among(group.copies, also)) {
        const Sketch& addend = sketches_.at(copy->record);
        share ? share->add(addend) : static_cast<void>(share = addend);
      }
      whole ? whole->join(*share) : static_cast<void>(whole = share);
    }
    return std::move(whole.value());
  }

  const Dump& dump_;
  const LogicalTensor& tensor_;
  std::map<std::vector<Box>, SketchGroup> groups_;
  std::map<const Record*, Sketch> sketches_;
};

}  // namespace

Sketch sketch_of_record(const Dump& dump, std::size_t index, const SketchSpec& spec) {
  const Record& record = dump.records.at(index);
  const Shape& whole = shape_of(record);
  Sketcher sketcher(whole, spec);
  const TensorSource source = dump.source(index);
  const TensorSource flat = source.reshaped({source.size()});
  for (const Piece& piece : pieces_of(record, dump.mesh))
    sketcher.add(elements_of(flat, piece), piece.box.offsets);
  return sketcher.result();
}

bool has_sketches(const Dump& dump, const LogicalTensor& tensor) {
  return std::ranges::all_of(tensor.records,
                             [&](std::size_t i) { return dump.records[i].sketch != nullptr; });
}

MergedSketch merge_sketches(const Dump& dump, const LogicalTensor& tensor, const SketchSpec& spec) {
  if (has_sketches(dump, tensor)) return SketchMerge(dump, tensor).run();
  if (const Record* other = without_bits(dump, tensor))
    throw Error("{}: rank {} recorded neither values nor a sketch of it", to_string(tensor.id), other->rank);
  const Merged merged = merge(dump, tensor);
  const auto sketched = [&](const TensorSource& t) {
    Sketcher sketcher(t.shape(), spec);
    sketcher.add(t, Shape(t.shape().size(), 0));
    return sketcher.result();
  };
  MergedSketch result{sketched(merged.tensor), merged.replicas, {}};
  if (merged.sum_of_replicas) result.sum_of_replicas = sketched(*merged.sum_of_replicas);
  return result;
}

}  // namespace assay
