#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// One tensor of the run, put together from the ranks that hold its parts.
struct LogicalTensor {
  Identity id;
  std::int64_t seq = 0;        ///< position in execution order: the smallest of its records
  std::string op, attributes;  ///< as Record has them
  std::optional<std::int64_t> count;
  DType dtype = DType::float32;
  Shape shape;                       ///< global, without padding
  bool within = false;               ///< as Record has it
  std::vector<std::size_t> records;  ///< indices into Dump::records
};

/// Returns the first record of the tensor without values; nullptr if all records have values.
const Record* without_bits(const Dump&, const LogicalTensor&);

/// Returns all tensors of a dump in execution order, without what is unplaced.
std::vector<LogicalTensor> logical_tensors(const Dump&);

/// Two ranks that should hold equal bits and hold different bits.
struct ReplicaMismatch {
  std::string mesh_dim;  ///< the mesh dimension over which they should agree; empty for an unrecorded mesh
  int rank_a = 0, rank_b = 0;
  std::int64_t different = 0;  ///< elements whose bits differ
  std::int64_t worst = 0;      ///< flat index (of the local part) of the largest difference
  double value_a = 0, value_b = 0;
};

struct Merged {
  TensorSource tensor;
  std::vector<ReplicaMismatch> replicas;  ///< empty: every copy has the same bits
  /// The exact sum of the replicas, rounded once, if they differ: the tensor as it would be if they were
  /// partial sums. It reveals a missing all-reduce.
  std::optional<TensorSource> sum_of_replicas;
};

/// Puts the parts of a tensor together: shards must cover the global shape exactly, replicas are compared bit
/// by bit (the copy of the lowest rank is kept), partials are summed exactly and rounded once to the dtype of
/// the tensor. The result is assembled window by window as it is read, and is never in memory as a whole.
/// A sum needs the addend of every coordinate of its partial mesh dimensions. On the other dimensions a
/// tensor may live on some coordinates only. An addend of zeros (an expert without tokens) must be recorded
/// as well: without it, the rank would look forgotten.
/// Throws Error that names the ranks of a gap, an overlap or a contradiction in shape or dtype.
Merged merge(const Dump&, const LogicalTensor&);

/// Throws Error if a file of the tensor has shrunk since it was opened, so that the read numbers are not
/// those of the file. Call it after reading.
void check_not_shrunk(const Dump&, const LogicalTensor&);

}  // namespace assay
