#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "library.h"

namespace assay {

/// Lets the library see these bytes, and no other file, whatever a file names. Call it once.
/// @return an access property list for H5Fopen, under any name
hid_t use_only(std::span<const std::byte> file);

/// The bytes as far as the open file says that it goes.
std::span<const std::byte> addressed_bytes();

/// While it lives, elements are not read: where they lie is remembered instead. The library has no question
/// for the place of a chunk that does not walk over all chunks before it (H5Dget_chunk_info).
class PlacesOnly {
 public:
  PlacesOnly();
  ~PlacesOnly();
  PlacesOnly(const PlacesOnly&) = delete;
  PlacesOnly& operator=(const PlacesOnly&) = delete;

  struct Place {
    std::uint64_t offset = 0, size = 0;
  };
  /// Of the one read since the last question; nothing if there was none, or several.
  std::optional<Place> take();
};

}  // namespace assay
