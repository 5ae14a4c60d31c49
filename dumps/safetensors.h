#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "assay/dumps/io/file.h"
#include "assay/dumps/record/dump.h"
#include "assay/golden/tensor.h"

namespace assay {

/// A safetensors file. huggingface/safetensors, README "Format" and safetensors/src/tensor.rs.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    std::string type;            ///< as written: "BF16"
    std::optional<DType> dtype;  ///< nothing for types without a DType here (F4, C64, ..)
    Shape shape;
    std::uint64_t begin = 0, end = 0;  ///< in the file
  };

  /// Throws Error unless the header is whole and its tensors fill the file without holes or overlap.
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file);
  SafetensorsFile(const SafetensorsFile&) = delete;  // by_name_ points into entries_
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const MappedFile& file() const { return *file_; }
  /// In the order of the header.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Its sharding, as torch.distributed.checkpoint writes it: where in the whole tensor the entry starts.
  /// Nothing if the file does not say so.
  std::optional<Shape> offsets(const Entry&) const;
  const Entry* find(std::string_view name) const;
  /// The tensor, in place.
  Tensor read(const Entry&) const;
  /// The same bytes as `dtype`, which must have the same size: bfloat16 may be stored as U16.
  Tensor read(const Entry&, DType dtype) const;

 private:
  void read_sharding(const std::string& text);
  void check_data(std::uint64_t data) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::vector<Shape> offsets_;  // one per entry, or none
};

/// The record of one entry. A shard's global shape is only known to reach to its own end.
/// @param hint  float32 may be tfloat32 or hfloat32, which the format cannot name; it names all others
Record safetensors_record(const SafetensorsFile&, const SafetensorsFile::Entry&, std::size_t seq,
                          std::optional<DType> hint);
/// "<where>: tensor 'x' is C64, ..": why an entry without a DType cannot be compared.
std::string why_left_out(const SafetensorsFile&, const SafetensorsFile::Entry&);

}  // namespace assay
