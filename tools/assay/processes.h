#pragma once

#include <memory>
#include <string>

#include "assay/align/ranks/mpi_job.h"
#include "assay/compare/team.h"
#include "assay/golden/log.h"

namespace assay {

/// The processes with which mpirun started this one, which do one job together: the first writes the
/// reports. One alone where no launcher of MPI is around, or --alone was given.
class Processes {
 public:
  /// @throws Error if several were started and this program was built without MPI, or with another one
  explicit Processes(bool alone);

  const Team& team() const { return team_; }
  /// The program's log, whose lines name this process where there are several.
  Log log() const;
  bool is_first() const { return team_.rank == 0; }
  /// How many of them share this machine's cores.
  int on_this_machine() const { return on_this_machine_; }
  /// Whether all can begin; every process must call it.
  /// @param problem  what is wrong here, or ""
  /// @throws Error in the first process, with the first problem; the others return false
  bool can_begin(const std::string& problem) const;
  /// Says why and ends all of them where one cannot go on: the others wait for it. Alone it returns.
  void give_up(const std::string& why) const;

 private:
  std::unique_ptr<align::MpiJob> job_;
  Team team_;
  int on_this_machine_ = 1;
};

}  // namespace assay
