#include "assay/align/ranks/mpi_job.h"
#include "assay/golden/error.h"
#include "launched.h"

namespace assay::align {

std::unique_ptr<MpiJob> join_mpi_job() {
  if (launched_processes() == 1) return nullptr;
  throw Error(
      "{} processes of MPI were started and this assay was built without MPI; expected one that was built "
      "with it, or diff --alone in a script that runs in each process",
      launched_processes());
}

}  // namespace assay::align
