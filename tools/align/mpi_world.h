#pragma once

#include <chrono>
#include <functional>

#include "assay/align/communicator.h"

namespace assay::align {

/// MPI, from construction to destruction; once in a process.
class MpiWorld {
 public:
  /// @throws Error  if the launcher's number of processes is not what this MPI sees
  MpiWorld();
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Runs `work` as the rank that this process is. All processes must call it; it may be called again.
  /// @param patience  how long a rank waits for another
  /// @throws Error  in every process, with the first problem of any, when all have ended. Where one does not
  ///                end (it is stopped, or computes without end), the problem is said on standard error and
  ///                all processes are ended with status 2.
  void run(const std::function<void(Communicator&)>& work,
           std::chrono::milliseconds patience = std::chrono::seconds(10)) const;

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace assay::align
