#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "assay/dumps/hdf5/chunk_cache.h"
#include "assay/dumps/hdf5/chunks.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// The elements of a dataset in chunks, or with nothing but its fill value, as they are asked for. Unfiltered
/// chunks are never copied as a whole; other chunks are decoded when a window touches them. The cache holds a
/// row of chunks, or 64 MiB if that is less.
/// @param dtype   the type of the bits
/// @throws Error  for chunks of a wrong size; a window throws for chunks that do not inflate
TensorSource windows_of(Hdf5Chunks, const Hdf5File::Dataset&, DType dtype, std::shared_ptr<const MappedFile>);

/// A tensor in C order that is cut into chunks in C order; trailing dimensions that are not cut are one with
/// the last that is.
class ChunkGrid {
 public:
  ChunkGrid(const Shape& shape, const Shape& extents);

  /// How many chunks a pass over all elements is inside of at a time.
  std::size_t open_chunks() const;
  /// All of [begin, end) lies side by side in one chunk.
  bool is_one_run(std::int64_t begin, std::int64_t end) const {
    const std::int64_t row = shape_.back(), piece = extents_.back();
    return begin / row == (end - 1) / row && begin % row / piece == (end - 1) % row / piece;
  }
  /// f(chunk, from, to, count) for elements [begin, end) in order: `from` in the chunk, `to` behind `begin`.
  template <class F>
  void for_each_run(std::int64_t begin, std::int64_t end, F&& f) const {
    const std::int64_t row = shape_.back(), piece = extents_.back();
    for (std::int64_t at = begin; at < end;) {
      const RowStart start = row_of(at / row);
      const std::int64_t row_begin = at - at % row, row_end = std::min(end, row_begin + row);
      for (std::int64_t k = (at - row_begin) / piece; at < row_end; ++k) {
        const std::int64_t piece_begin = row_begin + k * piece;
        const std::int64_t count = std::min(piece_begin + piece, row_end) - at;
        f(static_cast<std::size_t>(start.chunk + k), start.from + at - piece_begin, at - begin, count);
        at += count;
      }
    }
  }

 private:
  struct RowStart {
    std::int64_t chunk, from;  ///< the first chunk of the row, and where the row starts in its chunks
  };
  RowStart row_of(std::int64_t index) const;

  Shape shape_, extents_, along_;  ///< along: how many chunks
};

}  // namespace assay
