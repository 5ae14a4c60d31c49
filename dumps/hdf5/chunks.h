#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "assay/dumps/hdf5/filters.h"
#include "assay/dumps/hdf5/hdf5.h"

namespace assay {

/// The chunks of a dataset, and their places in the file.
struct Hdf5Chunks {
  struct Place {
    std::uint64_t offset = 0, size = 0;  ///< in the file; hdf5_none: not stored, all fill value
    std::uint64_t skipped = 0;           ///< bit i: filter i was not applied
  };
  std::vector<std::byte> fill;  ///< one element
  Shape extents;                ///< of a chunk; empty: the dataset is all fill value
  bool edges_are_unfiltered = false;
  std::vector<Hdf5Filter> filters;
  std::vector<Place> places;  ///< in C order; edge chunks are stored whole
};

/// A worker's answer to Hdf5Question::chunks, checked. Throws Error.
Hdf5Chunks parse_chunks(MessageReader, const Hdf5File::Dataset&, const MappedFile&);
/// Returns the offset of the chunks if they lie in the file in C order, contiguous and unfiltered, so that
/// they are the elements in place; else hdf5_none.
std::uint64_t elements_in_place(const Hdf5Chunks&, const Hdf5File::Dataset&);
std::size_t bytes_of_chunk(const Hdf5Chunks&);
/// The index of the first element of places[place].
Shape corner_of(std::size_t place, const Shape& shape, const Shape& extents);
/// Writes `fill` into all of `bytes`.
void fill_with(std::span<std::byte> bytes, std::span<const std::byte> fill);

}  // namespace assay
