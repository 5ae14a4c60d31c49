// A program under mpirun whose ranks get into trouble, or wait for long:
//   mpi_trouble TROUBLE [patience in ms]
//   killed|exits|stopped|stopped-alone|stopped-when-done|computes|computes-for-long|stranger|garbled|throws|rounds
#include <fmt/format.h>
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "assay/align/ranks/mpi_job.h"
#include "assay/golden/error.h"

namespace {

using namespace assay;
using align::Communicator;

void gather(Communicator& on, const std::string& what) {
  std::vector<int> all(static_cast<std::size_t>(on.size()));
  std::iota(all.begin(), all.end(), 0);
  on.all_gather(all, what, Tensor(DType::float32, {4}));
}

void before_the_second_exchange(Communicator& on, const std::function<void()>& trouble) {
  gather(on, "first");
  if (on.rank() == 1) trouble();
  gather(on, "second");
}

// Longer than the others need to find out that one is lost, with a core that is busy.
void compute_for_long() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(11);
  while (std::chrono::steady_clock::now() < end) {
  }
}

// The others are still at work.
void stop_when_done(Communicator& on) {
  if (on.rank() != 1) return std::this_thread::sleep_for(std::chrono::seconds(1));
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::raise(SIGSTOP);
  }).detach();
}

// Nobody waits in rank 0 when it comes.
void garbled(Communicator& on) {
  if (on.rank() == 0) std::this_thread::sleep_for(std::chrono::hours(1));
  const std::string letter = "assay letter 2\n";
  if (on.rank() == 1)
    MPI_Send(letter.data(), static_cast<int>(letter.size()), MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

void rounds(Communicator& on) {
  constexpr int count = 1000;
  gather(on, "begin");
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < count; ++round) gather(on, "round");
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  if (on.rank() == 0) fmt::print("{:.1f} us for each exchange\n", time.count() / count);
}

void run(const std::string& trouble, Communicator& on) {
  const std::map<std::string, std::function<void()>> troubles = {
      {"killed", [] { std::raise(SIGKILL); }},
      {"exits", [] { std::_Exit(0); }},
      {"stopped", [] { std::raise(SIGSTOP); }},
      {"stranger", [] { MPI_Send("hello", 5, MPI_BYTE, 0, 1, MPI_COMM_WORLD); }},
      {"computes-for-long", compute_for_long},
      {"computes", [] { std::this_thread::sleep_for(std::chrono::hours(1)); }},
      {"throws", [] { throw Error("w is not finite"); }}};
  if (trouble == "rounds") return rounds(on);
  if (trouble == "stopped-alone") {
    if (on.rank() == 1) std::raise(SIGSTOP);
    return;
  }
  if (trouble == "stopped-when-done") return stop_when_done(on);
  if (trouble == "garbled") return garbled(on);
  before_the_second_exchange(on, troubles.at(trouble));
}

}  // namespace

int main(int argc, char** argv) {
  const auto job = align::join_mpi_job();
  const std::chrono::milliseconds patience(argc > 2 ? std::atoi(argv[2]) : 500);
  try {
    job->run([&](Communicator& on) { run(argv[1], on); }, patience);
    return 0;
  } catch (const Error& e) {
    if (job->rank() == 0) fmt::print(stderr, "assay: {}\n", e.what());
    return 2;
  }
}
