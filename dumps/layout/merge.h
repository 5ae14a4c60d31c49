#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/dumps/record/dump.h"
#include "assay/golden/tensor_source.h"

namespace assay {

/// One tensor of the run, whatever ranks hold its parts.
struct LogicalTensor {
  Identity id;
  std::int64_t seq = 0;  ///< smallest over its records: position in execution order
  std::string op;
  std::optional<std::int64_t> count;
  DType dtype = DType::float32;
  Shape shape;                       ///< global, without padding
  std::vector<std::size_t> records;  ///< indices into Dump::records
};

/// The first of the tensor's records of which no values were recorded; nullptr if all have them.
const Record* without_bits(const Dump&, const LogicalTensor&);

/// All tensors of a dump, in execution order.
std::vector<LogicalTensor> logical_tensors(const Dump&);

/// Two ranks that should hold the same bits and do not.
struct ReplicaMismatch {
  std::string
      mesh_dim;  ///< the mesh dimension over which they should agree; empty if the mesh is not recorded
  int rank_a = 0, rank_b = 0;
  std::int64_t different = 0;  ///< elements whose bits differ
  std::int64_t worst = 0;      ///< flat index (of the local part) of the largest difference
  double value_a = 0, value_b = 0;
};

struct Merged {
  TensorSource tensor;
  std::vector<ReplicaMismatch> replicas;  ///< empty: every copy has the same bits
  /// Where replicas differ: what the tensor would be if they were partial sums, i.e. the exact sum over the
  /// replicas, rounded once. A missing all-reduce shows here.
  std::optional<TensorSource> sum_of_replicas;
};

/// Puts the parts together: shards must cover the global shape exactly, replicas are compared bit by bit (the
/// copy of the lowest rank is kept), partials are summed exactly and rounded once to the tensor's dtype. The
/// result is put together window by window, as it is read: it is never in memory as a whole.
/// A sum needs the addend of every coordinate of its partial mesh dimensions; on the other dimensions a
/// tensor may live on some coordinates only. An addend of zeros (an expert that got no token) is recorded
/// like any other: left out, it could not be told from a rank that was forgotten. Throws Error that names the
/// ranks of a gap, an overlap or a contradiction in shape or dtype.
Merged merge(const Dump&, const LogicalTensor&);

/// To be asked once the merged tensor was read: throws Error if a file that it came from has shrunk
/// meanwhile, so that what was read are not its numbers.
void check_not_shrunk(const Dump&, const LogicalTensor&);

}  // namespace assay
