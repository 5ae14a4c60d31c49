#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assay/golden/tensor.h"

namespace assay::align {

/// How long a rank waits for one that computes.
constexpr std::chrono::milliseconds default_patience = std::chrono::minutes(10);

/// The ranks of a strategy as one of them sees the others. It only carries tensors: what a collective
/// computes of them, every rank computes for itself in a stated order, so that results have the same bits on
/// any transport.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Part k goes to rank group[k]; what comes back is from each of them, in the group's order. All of them
  /// must call it, with equal `what`; shapes and dtypes may differ.
  /// @param group  ranks, rising, this one among them
  /// @param what   names the collective in errors: "all-reduce of model.norm.weight over dp"
  /// @throws Error  if ranks call different collectives, and if one of them does not come: at once if it has
  ///                ended, within seconds if it is lost or if all wait for each other, else after the
  ///                patience of the communicator. It says what every rank was at.
  virtual std::vector<Tensor> all_to_all(const std::vector<int>& group, const std::string& what,
                                         const std::vector<Tensor>& parts) = 0;

  /// Does not wait for the receiver.
  virtual void send(int to, const std::string& what, const Tensor&) = 0;
  /// The tensors of a sender arrive in the order in which it sent those of that name.
  /// @throws Error  as all_to_all does
  virtual Tensor receive(int from, const std::string& what) = 0;

  /// What every rank of the group gives.
  std::vector<Tensor> all_gather(const std::vector<int>& group, const std::string& what, const Tensor& mine) {
    return all_to_all(group, what, std::vector<Tensor>(group.size(), mine));
  }
};

/// Runs `work` once for each rank, each on a thread of its own. The first problem is thrown when all have
/// ended; who waits for a rank that has ended, or when all wait, waits no longer.
void run_ranks(int size, const std::function<void(Communicator&)>& work,
               std::chrono::milliseconds patience = default_patience);

}  // namespace assay::align
