#include "assay/align/mpi_world.h"

#include <fmt/format.h>

#include "assay/align/launched.h"
#include "mpi_rank.h"
#include "rank_error.h"

namespace assay::align {
namespace {

// What the work throws, and by which rank; "" if it throws nothing. Anything but std::exception ends this
// process, and so all: the others would wait for it.
std::string problem_of(const std::function<void(Communicator&)>& work, Communicator& rank) noexcept {
  try {
    work(rank);
    return "";
  } catch (const RankError& e) {
    return e.what();  // says which rank
  } catch (const std::exception& e) {
    return fmt::format("rank {}: {}", rank.rank(), e.what());
  }
}

}  // namespace

MpiWorld::MpiWorld() {
  int threads = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  if (launched_processes() > 1 && launched_processes() != size_) {
    MPI_Finalize();
    throw Error(
        "the launcher started {} processes, this assay's MPI sees {}; expected the mpirun of the same MPI, "
        "or diff --alone in a script that runs in each process",
        launched_processes(), size_);
  }
  if (threads < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw Error("this MPI cannot be called by several threads; expected one that can, as Open MPI 4");
  }
}

MpiWorld::~MpiWorld() {
  MPI_Finalize();
}

void MpiWorld::run(const std::function<void(Communicator&)>& work, std::chrono::milliseconds patience) const {
  std::string problem;
  {
    MpiRank rank(rank_, size_, patience);
    problem = rank.end(problem_of(work, rank));
  }
  // Nobody sends letters of the next run before all have read those of this one.
  MPI_Barrier(MPI_COMM_WORLD);
  if (!problem.empty()) throw Error("{}", problem);
}

}  // namespace assay::align
