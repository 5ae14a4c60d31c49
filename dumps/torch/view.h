#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/dumps/io/zip.h"
#include "assay/dumps/torch/pickle.h"
#include "assay/golden/tensor.h"

namespace assay {

/// The storages of one file of torch.save, by torch's keys: "0", "1", ..
class TorchStorages {
 public:
  TorchStorages() = default;
  virtual ~TorchStorages() = default;
  TorchStorages(const TorchStorages&) = delete;
  TorchStorages& operator=(const TorchStorages&) = delete;

  /// In bytes; nothing if the file has no such storage.
  virtual std::optional<std::uint64_t> size(std::string_view key) const = 0;
  /// Throws Error if it is damaged.
  virtual ZipArchive::Content read(std::string_view key) const = 0;

  bool big_endian = false;
};

/// A tensor as a pickle describes it: a strided view, in elements, of a storage or of bytes in the pickle.
struct TorchView {
  DType dtype = DType::float32;
  Shape shape, strides;
  std::int64_t offset = 0;
  std::string storage;          ///< its key; empty: the bytes are `content`
  ZipArchive::Content content;  ///< of a numpy array
  bool big_endian = false;      ///< the order of `content`
};

/// Returns the tensor that torch._utils.<function> (_rebuild_tensor, _v2, _v3) makes of the arguments.
/// Nothing, and `why`, for an object that is no tensor of a known dtype. Throws Error ("<where>: ...") for a
/// tensor that contradicts itself or its storage.
std::optional<TorchView> parse_torch_view(const Pickle&, std::string_view function,
                                          const std::vector<Pickle::Ref>& arguments, const TorchStorages&,
                                          std::string_view where, std::string& why);
/// Dense, little-endian; in place where the storage is.
Tensor read_torch_view(const TorchView&, const TorchStorages&, std::string_view where);

/// Integers in a tuple, a list or a torch.Size; Error ("<where>: its <what> ..") for anything else.
Shape pickled_integers(const Pickle&, Pickle::Ref, std::string_view where, std::string_view what);
/// Throws Error ("<where>: ...") unless the view lies within `elements`.
void check_inside(const TorchView&, std::int64_t elements, std::string_view where);

/// A storage as a persistent id names it: ('storage', class, key, location, elements[, view]).
struct StorageId {
  std::string_view key;
  std::string_view class_name;
  std::optional<DType> dtype;  ///< of the class; nothing if it is untyped or unknown
  bool is_untyped = false;
  std::int64_t elements = 0;
  std::optional<std::pair<std::int64_t, std::int64_t>> part;  ///< offset and size of a view (old files)
  /// Bytes of an element; 0 if the class is unknown.
  std::size_t element_size() const { return is_untyped ? 1 : dtype ? size_of(*dtype) : 0; }
};
/// Throws Error ("<where>: ...") for a value that is no such id.
StorageId parse_storage_id(const Pickle&, Pickle::Ref persistent, std::string_view where);

}  // namespace assay
