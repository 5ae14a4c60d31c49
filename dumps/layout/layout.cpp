#include "assay/dumps/layout/layout.h"

#include <fmt/core.h>

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {
namespace {

// A placement that takes a tensor into more pieces than this is no real one; a flat range is at most two
// boxes per dimension.
constexpr std::size_t max_pieces = 1 << 20;
constexpr std::int64_t max_parts = 1 << 20;

struct Interval {
  std::int64_t begin = 0, length = 0;
};
// The global indices of one dimension that a rank holds, in the order in which it holds them.
using Indices = std::vector<Interval>;

std::int64_t length_of(const Indices& indices) {
  std::int64_t length = 0;
  for (const Interval& i : indices) length += i.length;
  return length;
}

void append(Indices& to, Interval part) {
  if (part.length == 0) return;
  if (!to.empty() && to.back().begin + to.back().length == part.begin)
    to.back().length += part.length;
  else
    to.push_back(part);
}

// Positions [first, last) of the indices.
void append_slice(Indices& to, const Indices& from, std::int64_t first, std::int64_t last) {
  for (const Interval& i : from) {
    const std::int64_t low = std::clamp<std::int64_t>(first, 0, i.length);
    const std::int64_t high = std::clamp<std::int64_t>(last, 0, i.length);
    append(to, {i.begin + low, high - low});
    first -= i.length;
    last -= i.length;
  }
}

// Piece `index` of torch.chunk: pieces of ceil(n / parts).
Indices chunk(const Indices& indices, std::int64_t parts, std::int64_t index) {
  const std::int64_t length = length_of(indices);
  const std::int64_t piece = length / parts + (length % parts != 0 ? 1 : 0);
  // piece * index <= length + parts, as piece <= length / parts + 1: no overflow.
  const std::int64_t begin = std::min(length, piece * index), end = std::min(length, begin + piece);
  Indices result;
  append_slice(result, indices, begin, end);
  return result;
}

// What coordinate `index` of `parts` holds under a shard; nothing if it has too many pieces.
Indices shard(const Indices& indices, const Placement& p, std::int64_t parts, std::int64_t index) {
  Indices result;
  const auto add = [&](const Indices& more) {
    for (const Interval& i : more) append(result, i);
  };
  if (p.zigzag) {
    add(chunk(indices, 2 * parts, index));
    add(chunk(indices, 2 * parts, 2 * parts - 1 - index));
    return result;
  }
  const std::int64_t length = length_of(indices);
  // Parts beyond the length are empty.
  for (std::int64_t s = 0; s < std::min(p.split_factor, std::max<std::int64_t>(length, 1)); ++s) {
    add(chunk(p.split_factor == 1 ? indices : chunk(indices, p.split_factor, s), parts, index));
    if (result.size() > max_pieces) return {};
  }
  return result;
}

[[noreturn]] void contradiction(const Record& record, const std::string& what) {
  std::string words;
  for (const Placement& p : record.placements) words += (words.empty() ? "" : ", ") + to_string(p);
  throw Error("{}: rank {} holds shape {} of global shape {}, but placements [{}] put it at {}",
              to_string(record.id), record.rank, to_string(record.shape), to_string(record.global_shape),
              words, what);
}

// The global indices per dimension of the local box.
std::vector<Indices> local_indices(const Record& record, const Mesh& mesh) {
  const std::size_t rank = record.global_shape.size();
  std::vector<Indices> indices(rank);
  if (record.offsets) {
    // A flattened record says its box by placements only.
    const Box box{*record.offsets, record.shape};
    bool inside = box.offsets.size() == rank && box.shape.size() == rank;
    for (std::size_t d = 0; inside && d < rank; ++d) {
      inside =
          box.offsets[d] <= record.global_shape[d] && box.shape[d] <= record.global_shape[d] - box.offsets[d];
      append(indices[d], {box.offsets[d], box.shape[d]});
    }
    if (!inside) contradiction(record, to_string(box));
    return indices;
  }
  for (std::size_t d = 0; d < rank; ++d) append(indices[d], {0, record.global_shape[d]});
  for (std::size_t m = 0; m < record.placements.size(); ++m) {
    const Placement& p = record.placements[m];
    if (p.kind != Placement::Kind::shard) continue;
    const auto d = static_cast<std::size_t>(p.dim);
    const bool in_mesh = m < mesh.shape.size() && m < record.mesh_coordinate.size() &&
                         mesh.shape[m] <= max_parts && record.mesh_coordinate[m] >= 0 &&
                         record.mesh_coordinate[m] < mesh.shape[m];
    if (d >= rank || !in_mesh || p.split_factor > max_parts)
      contradiction(record, "no place: " + to_string(p) + " does not fit its shape or the mesh");
    indices[d] = shard(indices[d], p, mesh.shape[m], record.mesh_coordinate[m]);
  }
  return indices;
}

std::string describe(const std::vector<Indices>& indices) {
  Box box;
  for (const Indices& i : indices) {
    if (i.size() > 1) return fmt::format("{} and other places", i.front().begin);
    box.offsets.push_back(i.empty() ? 0 : i.front().begin);
    box.shape.push_back(length_of(i));
  }
  return to_string(box);
}

// Elements [first, last) of a tensor in C order, as boxes: from each position the largest block of whole
// trailing dimensions that fits, as often as it fits.
std::vector<Box> boxes_of_range(std::int64_t first, std::int64_t last, const Shape& shape) {
  const Shape strides = dense_strides(shape);
  std::vector<Box> boxes;
  while (first < last) {
    // The outermost dimension d whose single steps fit: [first, first + strides[d]) is whole below d.
    std::size_t d = 0;
    while (d + 1 < shape.size() && (first % strides[d] != 0 || last - first < strides[d])) ++d;
    if (shape.empty()) return {{{}, {}}};
    const std::int64_t index = first / strides[d] % shape[d];
    const std::int64_t count = std::min(shape[d] - index, (last - first) / strides[d]);
    Box box{unravel(first, shape), Shape(shape.size(), 1)};
    box.shape[d] = count;
    for (std::size_t e = d + 1; e < shape.size(); ++e) box.shape[e] = shape[e];
    boxes.push_back(std::move(box));
    first += count * strides[d];
  }
  return boxes;
}

// Where a box of the local tensor lies in the global one: a piece for every combination of its intervals.
class Placed {
 public:
  Placed(const Record& record, const std::vector<Indices>& indices, Shape strides, std::int64_t first)
      : record_(record), indices_(indices), strides_(std::move(strides)), first_(first) {}

  void add(const Box& local, std::vector<Piece>& pieces) const {
    struct Overlap {
      std::int64_t begin, local, length;
    };
    const std::size_t rank = indices_.size();
    std::vector<std::vector<Overlap>> parts(rank);
    for (std::size_t d = 0; d < rank; ++d) {
      std::int64_t position = 0;
      for (const Interval& i : indices_[d]) {
        const std::int64_t low = std::max(position, local.offsets[d]);
        std::int64_t high = std::min(position + i.length, local.offsets[d] + local.shape[d]);
        const std::int64_t begin = i.begin + (low - position);
        if (record_.cut) high = std::min(high, low + (*record_.cut)[d] - begin);
        if (low < high) parts[d].push_back({begin, low, high - low});
        position += i.length;
      }
      if (parts[d].empty()) return;
    }
    std::vector<std::size_t> at(rank, 0);
    while (true) {
      if (pieces.size() == max_pieces)
        throw Error("{}: rank {} holds it in more than {} pieces", to_string(record_.id), record_.rank,
                    max_pieces);
      Piece piece{{}, -first_, strides_};
      for (std::size_t d = 0; d < rank; ++d) {
        const Overlap& part = parts[d][at[d]];
        piece.box.offsets.push_back(part.begin);
        piece.box.shape.push_back(part.length);
        piece.at += part.local * strides_[d];
      }
      pieces.push_back(std::move(piece));
      std::size_t d = rank;
      while (d > 0 && ++at[d - 1] == parts[d - 1].size()) at[--d] = 0;
      if (d == 0) return;
    }
  }

 private:
  const Record& record_;
  const std::vector<Indices>& indices_;
  Shape strides_;
  std::int64_t first_;
};

// Rows that follow each other in the global tensor too are one interval.
Indices intervals(const std::vector<std::int64_t>& rows, const Record& record) {
  Indices result;
  const std::int64_t all = record.global_shape.empty() ? 0 : record.global_shape[0];
  if (record.shape.empty() || static_cast<std::int64_t>(rows.size()) != record.shape[0])
    throw Error("{}: rank {} holds {} and the rows of {} are recorded; expected one per row",
                to_string(record.id), record.rank, to_string(record.shape), rows.size());
  for (const std::int64_t row : rows) {
    if (row < 0 || row >= all)
      throw Error("{}: rank {} holds row {}, expected rows below {}", to_string(record.id), record.rank, row,
                  all);
    append(result, {row, 1});
  }
  return result;
}

}  // namespace

Shape dense_strides(const Shape& shape) {
  element_count(shape);  // throws where they would overflow
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

bool Box::empty() const {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < std::min(box.offsets.size(), box.shape.size()); ++d) {
    // Unsigned: this also writes boxes that were found to lie outside everything.
    const auto begin = static_cast<std::uint64_t>(box.offsets[d]);
    text +=
        fmt::format("{}{}:{}", d == 0 ? "" : ", ", begin, begin + static_cast<std::uint64_t>(box.shape[d]));
  }
  return text + "]";
}

Box box_of(const Record& record, const Mesh& mesh) {
  Box box;
  for (const Indices& i : local_indices(record, mesh)) {
    box.offsets.push_back(i.empty() ? 0 : i.front().begin);
    box.shape.push_back(length_of(i));
  }
  return box;
}

const Shape& shape_of(const Record& record) {
  return record.cut ? *record.cut : record.global_shape;
}

std::vector<Piece> pieces_of(const Record& record, const Mesh& mesh, const std::vector<std::int64_t>& rows) {
  if (record.cut && record.cut->size() != record.global_shape.size())
    throw Error("{}: is cut to {}, expected as many extents as its global shape {} has", to_string(record.id),
                to_string(*record.cut), to_string(record.global_shape));
  std::vector<Indices> indices = local_indices(record, mesh);
  if ((record.rows || record.row_numbers) && !indices.empty())
    indices[0] = intervals(record.row_numbers ? *record.row_numbers : rows, record);
  Shape local;
  for (const Indices& i : indices) local.push_back(length_of(i));
  std::vector<Piece> pieces;
  if (record.flattened_range) {
    const auto [first, last] = *record.flattened_range;
    if (first < 0 || last < first || last > element_count(local) || record.shape.size() != 1 ||
        record.shape[0] < last - first)
      throw Error("{}: rank {} holds shape {} as elements {} to {} of {} at {}, which does not fit",
                  to_string(record.id), record.rank, to_string(record.shape), first, last, to_string(local),
                  describe(indices));
    const Placed placed(record, indices, dense_strides(local), first);
    for (const Box& box : boxes_of_range(first, last, local)) placed.add(box, pieces);
    return pieces;
  }
  if (local != record.shape) contradiction(record, describe(indices));
  Placed(record, indices, dense_strides(local), 0).add({Shape(local.size(), 0), local}, pieces);
  return pieces;
}

}  // namespace assay
