#pragma once

#include <string>
#include <vector>

#include "assay/align/forward/forward.h"

namespace assay::align {

inline double real(std::int64_t n) {
  return static_cast<double>(n);
}

/// The parts that the layers of a model share.
class LayerParts {
 public:
  LayerParts(Machine& machine, const Model& m, const Batch& b) : on(machine), model(m), batch(b) {}

  /// x w^T; w [out, in] is the whole matrix.
  Value linear(const std::string& module, const std::string& name, const Value& x, std::int64_t out,
               const std::vector<Sharding>& = {});
  /// Cut by columns or rows of x w^T, in a region of tensor parallel.
  Value column_linear(const std::string& module, const std::string& name, const Value& x, std::int64_t out);
  Value row_linear(const std::string& module, const std::string& name, const Value& x, std::int64_t out);
  Value norm(const std::string& module, const std::string& name, const Value& x, double eps = 0);
  Value add(const std::string& module, const Value& a, const Value& b, double alpha = 1);
  /// @param declared  where extents of 1 hide which dimension a shard is of
  Value reshape(const std::string& module, const Value& x, const Shape&,
                const std::vector<Sharding>& declared = {});
  Value permute(const std::string& module, const Value& x, const std::vector<double>& order);
  /// Columns [begin, end) of the last dimension.
  Value columns(const std::string& module, const Value& x, std::int64_t begin, std::int64_t end);
  /// Along the last dimension.
  Value beside(const std::string& module, const Value& a, const Value& b);
  /// SwiGLU, cut by columns of the first matrices.
  Value feed_forward(const std::string& module, const Value& x, std::int64_t size);

  Machine& on;
  const Model& model;
  const Batch batch;  ///< of this rank's part of the sequences
  const Modes modes = align::modes(batch, model, on.mesh().parallel());
};

/// A layer's attention: [tokens, hidden] to the same.
Value attention(LayerParts&, const std::string& module, const Value& x);

/// A layer's experts; its balance losses are appended.
Value experts(LayerParts&, const std::string& module, const Value& x, std::vector<Loss>&);

}  // namespace assay::align
