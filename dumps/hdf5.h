#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/file.h"
#include "assay/golden/tensor.h"

namespace assay {

/// An HDF5 file, read through the HDF5 C library, which is not thread-safe: all calls of the process share
/// one lock. Bits are never converted: the library decodes 14 of 256 codes of float8_e4m3fn wrongly.
class Hdf5File {
 public:
  struct Dataset {
    std::string name;            ///< path from the root, without the leading '/'
    std::string type;            ///< for messages
    std::optional<DType> dtype;  ///< nothing for types without a DType here (strings, compounds, ..)
    bool big_endian = false;
    Shape shape;
    std::optional<std::uint64_t> offset;  ///< in the file, where the elements lie there as they are
  };

  /// Throws Error if the library cannot open the file.
  explicit Hdf5File(std::shared_ptr<const MappedFile> file);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const MappedFile& file() const { return *file_; }
  /// Every dataset of numbers below the root, each once, in order of names. Links and what holds no
  /// numbers are left out.
  std::vector<Dataset> datasets(std::vector<std::string>& notes, std::vector<std::string>& left_out) const;
  /// Throws Error if there is no such dataset, or it lies outside the file (external or virtual storage).
  Dataset describe(const std::string& name) const;
  /// In place where the file allows it.
  Tensor read(const Dataset&) const;
  /// The same bits as `dtype`, which must have the same size: bfloat16 is stored as uint16.
  Tensor read(const Dataset&, DType dtype) const;
  /// A dataset that holds one text: bytes, or a string of fixed or variable length.
  std::string read_text(const std::string& name) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::int64_t handle_ = -1;
};

}  // namespace assay
