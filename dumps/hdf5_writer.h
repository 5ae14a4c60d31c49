#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "assay/golden/tensor.h"

namespace assay {

/// A new HDF5 file of contiguous datasets. Throws Error where the library or the disk refuses.
class Hdf5Writer {
 public:
  /// Replaces what is there.
  explicit Hdf5Writer(std::filesystem::path path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Raw bits under the native type of the same size: bfloat16 as uint16, float8 and bool as uint8.
  /// @param name  "/x" or "/group/x"; the group is made where it is missing
  /// @return      the offset of the bytes in the file, where they lie even if it is never closed; 0 for none
  std::uint64_t write(const std::string& name, const Tensor&);
  void write_text(const std::string& name, std::string_view text);
  /// Closes the file and waits until it is on the disk.
  void close();

 private:
  std::uint64_t write_bytes(const std::string& name, std::int64_t type, const Shape& shape,
                            const void* bytes);

  std::filesystem::path path_;
  std::int64_t file_ = -1;
};

/// Waits until a file or folder is on the disk. Throws Error if it cannot be.
void sync_to_disk(const std::filesystem::path&);

}  // namespace assay
