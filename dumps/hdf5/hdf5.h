#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/hdf5/message.h"
#include "assay/dumps/hdf5/worker.h"
#include "assay/dumps/io/file.h"
#include "assay/golden/log.h"
#include "assay/golden/tensor_source.h"

namespace assay {

class Hdf5Sources;

/// An HDF5 file. The HDF5 library sees it only in a worker process (worker.h), which reports the places of
/// the elements. The elements are read here, from the mapped file, and every place is checked, as the file
/// may have taken over the worker. Bits are never converted: the library decodes 14 of 256 codes of
/// float8_e4m3fn wrongly.
class Hdf5File {
 public:
  struct Dataset {
    std::string name;            ///< path from the root, without the leading '/'
    std::string type;            ///< for messages
    std::optional<DType> dtype;  ///< nothing for types without a DType here (strings, compounds, ..)
    bool big_endian = false;
    Shape shape;
    Hdf5Storage storage = Hdf5Storage::in_file;
    std::uint64_t offset = 0;  ///< in the file, of elements stored `in_file`
    std::uint64_t stored = 0;  ///< bytes in the file; 0 for chunks, whose size is not known
    std::string problem;       ///< the reason if it is known to be unreadable
  };
  struct Listing {
    std::vector<Dataset> datasets;      ///< of numbers, in order of names
    std::vector<std::string> notes;     ///< further names of datasets, which are left out
    std::vector<std::string> left_out;  ///< objects without numbers, and links out of the file
  };

  explicit Hdf5File(std::shared_ptr<const MappedFile> file, Log log = {});
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const MappedFile& file() const { return *file_; }
  std::shared_ptr<const MappedFile> shared_file() const { return file_; }
  /// Of the whole file, made once. Throws Error if the library cannot open or list it.
  const Listing& list() const;
  /// Throws Error if there is no such dataset of numbers. The first question lists the file.
  const Dataset& describe(const std::string& name) const;
  /// In place where the file allows it.
  Tensor read(const Dataset&) const;
  /// The same bits as `dtype`, which must have the same size: bfloat16 is stored as uint16.
  Tensor read(const Dataset&, DType dtype) const;
  /// The same elements. Those in chunks are read as they are asked for; then a damaged chunk is an Error of
  /// its windows.
  TensorSource source(const Dataset&, DType dtype) const;
  /// A dataset that holds one text: bytes, or a string of fixed or variable length.
  std::string read_text(const std::string& name) const;
  /// The worker's process; 0 while there is none.
  pid_t worker() const;

 private:
  friend class Hdf5Sources;

  std::vector<std::byte> ask(Hdf5Question, const std::string& name, std::uint64_t allowance) const;
  void rest() const;
  void rest_unlocked() const;
  Tensor read(const Dataset&, DType dtype, Hdf5Sources&) const;
  TensorSource source(const Dataset&, DType dtype, Hdf5Sources&) const;
  TensorSource read_chunks(const Dataset&, DType dtype) const;
  Tensor read_by_library(const Dataset&, DType dtype) const;

  std::shared_ptr<const MappedFile> file_;
  const Log log_;
  mutable std::mutex mutex_;  ///< of the two below
  mutable std::unique_ptr<Hdf5Worker> worker_;
  mutable std::unique_ptr<const Listing> listing_;
};

/// "<file>: dataset '<name>'"
std::string where(const MappedFile& file, const std::string& dataset);

}  // namespace assay
