#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "assay/dumps/hdf5/message.h"

namespace assay {

/// A link of a group of the old kind.
struct PlainLink {
  std::string name;
  std::uint64_t address = hdf5_none;  ///< of the object; hdf5_none: a soft link
};

// Groups as they were before HDF5 1.8, and are by default: a tree of names. The library takes 15 us to open
// one and list it; a dump may have a group for each tensor. HDF5 file format specification 3.0, III.A.1,
// III.B to D; the base address is 0, addresses and lengths have 8 bytes.

/// The object at this address is such a group.
bool is_plain_group(std::span<const std::byte> file, std::uint64_t address);
/// Its links. Nothing if it is none, or not as the specification says: the library decides then.
std::optional<std::vector<PlainLink>> read_group(std::span<const std::byte> file, std::uint64_t address);

}  // namespace assay
