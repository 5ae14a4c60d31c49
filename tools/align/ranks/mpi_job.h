#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "assay/align/ranks/communicator.h"

namespace assay::align {

/// The processes that a launcher of MPI started together with this one. MPI ends with it.
class MpiJob {
 public:
  virtual ~MpiJob() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Runs `work` as the rank that this process is. All processes must call it; it may be called again.
  /// @throws Error  in every process, with the first problem of any, when all have ended. Where one does not
  ///                end (it is stopped, or computes without end), the problem is said on standard error and
  ///                all processes are ended with status 2.
  virtual void run(const std::function<void(Communicator&)>& work,
                   std::chrono::milliseconds patience = default_patience) = 0;

  /// Says why on standard error and ends all processes with status 2.
  [[noreturn]] virtual void end_all(const std::string& why) const = 0;
};

/// Once in a process.
/// @return  nothing where no launcher has started several processes
/// @throws Error  if one has, and this program was built without MPI, or with another one
std::unique_ptr<MpiJob> join_mpi_job();

}  // namespace assay::align
