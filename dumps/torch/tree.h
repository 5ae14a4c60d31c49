#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"
#include "assay/dumps/torch/pickle.h"
#include "assay/dumps/torch/view.h"

namespace assay {

/// The tensors in an object given to torch.save: nested dicts and lists in their order, with names joined by
/// '.'.
struct TorchTree {
  std::vector<Record> records;
  std::vector<TorchView> views;  ///< one per record
  Mesh mesh;                     ///< of the DTensors
  std::vector<std::string> notes, left_out;
};

/// Values that are no tensors are counted in the notes; objects that may hold one are left out by name.
/// Throws Error ("<path>: ...") for a tensor that contradicts itself or its storage, and past any limit.
TorchTree read_torch_tree(const Pickle&, const TorchStorages&, std::string_view path);

/// A file of torch.save as a dump.
std::unique_ptr<Dump> make_torch_dump(std::filesystem::path, std::unique_ptr<const TorchStorages>,
                                      const Pickle&);

}  // namespace assay
