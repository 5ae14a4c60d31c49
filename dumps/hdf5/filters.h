#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace assay {

// The identifiers are those of the HDF5 file format specification 3.0, IV.A.2.l.
inline constexpr std::uint64_t hdf5_deflate = 1, hdf5_shuffle = 2, hdf5_fletcher32 = 3;

struct Hdf5Filter {
  std::uint64_t id = 0;
  std::string name;             ///< as the file says, for messages; may be empty
  std::uint64_t parameter = 0;  ///< the first: bytes of an element, of shuffle
};

enum class Hdf5Decoder { own, library, none };
/// Who can undo these filters: this file, in parallel; the HDF5 library (szip, nbit, scaleoffset); nobody.
Hdf5Decoder decoder_of(const std::vector<Hdf5Filter>&);
/// "filter 32001 (blosc)": the first that nobody can undo.
std::string unknown_filter(const std::vector<Hdf5Filter>&);

/// Undoes the filters of chunks, one after the other; one object for each thread.
class Hdf5Unfilter {
 public:
  struct Chunk {
    std::span<const std::byte> bytes;    ///< empty: it is damaged
    std::unique_ptr<std::byte[]> owner;  ///< nothing: they are the stored ones
  };
  /// @param size  bytes of a chunk
  Hdf5Unfilter(const std::vector<Hdf5Filter>& filters, std::size_t size);
  ~Hdf5Unfilter();
  Hdf5Unfilter(const Hdf5Unfilter&) = delete;
  Hdf5Unfilter& operator=(const Hdf5Unfilter&) = delete;

  /// @param skipped  bit i: filter i was not applied to this chunk
  Chunk operator()(std::span<const std::byte> stored, std::uint64_t skipped);

 private:
  std::unique_ptr<std::byte[]> inflate(std::span<const std::byte> stored, std::size_t size);

  const std::vector<Hdf5Filter>& filters_;
  std::size_t size_;
  z_stream stream_{};
};

/// The checksum of fletcher32 as HDF5 computes it.
std::uint32_t fletcher32(std::span<const std::byte>);

}  // namespace assay
