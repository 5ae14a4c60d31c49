#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "assay/align/arithmetic/arithmetic.h"
#include "assay/align/placement/mesh.h"
#include "assay/align/placement/movement.h"
#include "assay/align/ranks/communicator.h"

namespace assay::align {

/// What a rank computes with others: movements of tensors over its mesh.
class Ranks {
 public:
  Ranks(Communicator& communicator, const Mesh& mesh, std::shared_ptr<const Arithmetic> arithmetic)
      : communicator_(communicator), mesh_(mesh), arithmetic_(std::move(arithmetic)) {}

  Communicator& communicator() const { return communicator_; }
  const Mesh& mesh() const { return mesh_; }
  const Arithmetic& arithmetic() const { return *arithmetic_; }

  /// Of a closed tensor or of indices; sums are open, come in open and go out open.
  Tensor move(const Movement&, const std::string& module, const Tensor& closed) const;
  Tensor move_open(const Movement&, const std::string& module, const Tensor& open) const;
  /// The sum of open tensors over the group.
  Tensor sum(const std::vector<int>& group, const std::string& what, const Tensor& open) const;
  /// This rank's piece of a sum, from what each of the group has of it: of a ring it is the rank's chunk.
  Tensor sum_pieces(const std::vector<int>& group, const std::string& what,
                    const std::vector<Tensor>& pieces) const;
  /// Of indices.
  Tensor sum_indices(const std::vector<int>& group, const std::string& what, const Tensor&) const;
  /// The first give[0] rows go to the first rank of the node, ..; take[k] come from rank k.
  Tensor exchange_rows(const std::string& module, const Tensor&, std::span<const std::int64_t> give,
                       bool open) const;

 private:
  Tensor move(const Movement&, const std::string& what, const Tensor&, std::size_t leading) const;

  Communicator& communicator_;
  const Mesh mesh_;
  std::shared_ptr<const Arithmetic> arithmetic_;
};

}  // namespace assay::align
