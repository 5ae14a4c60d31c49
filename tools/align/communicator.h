#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay::align {

/// The ranks of a strategy as one of them sees the others. Every collective is made of one exchange, and what
/// it computes of the parts is computed by every rank for itself, in a stated order: results have the same
/// bits on any transport.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// What every rank of the group gives, in the group's order. All of them must call it, with equal `what`.
  /// @param group  ranks, rising, this one among them
  /// @param what   names the collective in errors: "all-reduce of model.norm.weight over dp"
  /// @throws Error  if ranks call different collectives, and if one of them does not come: after the patience
  ///                of the communicator, or at once if it has ended. It says what every rank was at.
  virtual std::vector<Tensor> exchange(const std::vector<int>& group, const std::string& what,
                                       const Tensor& mine) = 0;
};

/// In which order the parts of a sum are added: one after the other by rank; as a ring does, in which part k
/// of the elements begins at rank k + 1 and ends at rank k; or in pairs of neighbours.
enum class ReduceOrder : std::uint8_t { ranks, ring, tree };

/// The sum over the group, in the arithmetic of the tensors' dtype.
Tensor all_reduce(Communicator&, const std::vector<int>& group, const std::string& what, const Tensor& mine,
                  ReduceOrder = ReduceOrder::ranks);

/// Runs `work` once for each rank, each on a thread of its own. The first problem is thrown when all have
/// ended; who waits for a rank that has ended waits no longer.
/// @param patience  how long a rank waits for another
void run_ranks(int size, const std::function<void(Communicator&)>& work,
               std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace assay::align
