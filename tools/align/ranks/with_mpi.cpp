#include <fmt/format.h>

#include "assay/align/ranks/mpi_job.h"
#include "launched.h"
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

// All of MPI_COMM_WORLD.
class World : public MpiJob {
 public:
  World() {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads_);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  ~World() override { MPI_Finalize(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool takes_threads() const { return threads_ >= MPI_THREAD_SERIALIZED; }

  void run(const std::function<void(Communicator&)>& work, std::chrono::milliseconds patience) override {
    MpiRank rank(rank_, size_, runs_++, patience);
    const std::string problem = rank.end(problem_of(work, rank));
    if (!problem.empty()) throw Error("{}", problem);
  }

  [[noreturn]] void end_all(const std::string& why) const override { end_all_processes(why); }

 private:
  int threads_ = MPI_THREAD_SINGLE, rank_ = 0, size_ = 1, runs_ = 0;
};

}  // namespace

std::unique_ptr<MpiJob> join_mpi_job() {
  if (launched_processes() == 1) return nullptr;
  auto world = std::make_unique<World>();
  if (world->size() != launched_processes())
    throw Error(
        "the launcher started {} processes, this assay's MPI sees {}; expected the mpirun of the same MPI, "
        "or diff --alone in a script that runs in each process",
        launched_processes(), world->size());
  if (!world->takes_threads())
    throw Error("this MPI does not take calls of several threads; expected one that does, as Open MPI 4");
  return world;
}

}  // namespace assay::align
