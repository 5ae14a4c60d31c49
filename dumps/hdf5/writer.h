#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "assay/dumps/record/plain_tensor.h"
#include "assay/golden/tensor.h"

namespace assay {

/// Writes a new HDF5 file of contiguous datasets. Throws Error if the library, in its own process, or the
/// disk refuses.
class Hdf5Writer {
 public:
  /// Replaces an existing file.
  explicit Hdf5Writer(const std::filesystem::path&);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// Writes raw bits under the native type of the same size: bfloat16 as uint16, float8 as uint8, bool as
  /// h5py writes it.
  /// @param name  "/x" or "/group/x"; missing groups are made
  /// @return      the offset of the bytes in the file, which holds even if the file is never closed; 0 for a
  ///              tensor without bytes
  std::uint64_t write(const std::string& name, const Tensor&);
  void write_text(const std::string& name, std::string_view text);
  /// Closes the file, which ends it for this writer; sync_to_disk waits for the disk.
  void close();

 private:
  class Process;
  struct File;
  std::unique_ptr<File> file_;
};

/// Writes a new HDF5 file, which appears whole or not at all; a '/' in a name makes a group. Throws Error
/// that names the file if it exists, a name does not fit, or it cannot be written.
void write_hdf5(const std::filesystem::path&, std::span<const PlainTensor>);

}  // namespace assay
