#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "assay/dumps/record/dump.h"
#include "assay/golden/error.h"

namespace assay {

/// A dump that lives in memory.
class MemoryDump : public Dump {
 public:
  explicit MemoryDump(std::string name) {
    path = std::move(name);
    format = "memory";
  }

  /// A whole tensor, executed after all before it.
  Record& add(Identity id, Tensor tensor) {
    Record r;
    r.id = std::move(id);
    r.seq = static_cast<std::int64_t>(records.size());
    r.dtype = tensor.dtype();
    r.shape = r.global_shape = tensor.shape();
    records.push_back(std::move(r));
    tensors_.push_back(std::move(tensor));
    return records.back();
  }
  Record& add(const std::string& module, Tensor tensor) {
    Identity id;
    id.module = module;
    return add(id, std::move(tensor));
  }
  /// One rank's copy; the mesh is the ranks in a row.
  Record& add_copy(const Identity& id, int rank, Tensor tensor) {
    Record& r = add(id, std::move(tensor));
    r.rank = rank;
    r.seq = static_cast<std::int64_t>(records.size()) / 2;
    r.placements = {Placement{}};
    r.mesh_coordinate = {rank};
    return r;
  }
  /// Other values in the place of a record's, of its shape and dtype.
  void replace(std::size_t index, Tensor tensor) { tensors_[index] = std::move(tensor); }
  void damage(const std::string& module) { damaged_ = module; }

  Tensor read(std::size_t index) const override {
    if (records[index].id.module == damaged_) throw Error("{}: damaged", location(index));
    return tensors_[index];
  }
  std::string location(std::size_t index) const override {
    return path.string() + ": " + records[index].id.module;
  }

 private:
  std::vector<Tensor> tensors_;
  std::optional<std::string> damaged_;
};

inline Tensor tensor(DType d, std::vector<double> values) {
  return Tensor::from_values(d, {static_cast<std::int64_t>(values.size())}, values);
}
inline Tensor float32(std::vector<double> values) {
  return tensor(DType::float32, std::move(values));
}

}  // namespace assay
