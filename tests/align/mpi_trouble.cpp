// A program under mpirun whose ranks get into trouble: mpi_trouble
// killed|exits|stopped|stopped-alone|computes|stranger|garbled|throws|rounds
#include <fmt/format.h>
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "assay/align/mpi_job.h"
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

// Nobody waits in rank 0 when it comes.
void garbled(Communicator& on) {
  if (on.rank() == 0) std::this_thread::sleep_for(std::chrono::hours(1));
  const std::string letter = "assay letter 1\n";
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
      {"computes", [] { std::this_thread::sleep_for(std::chrono::hours(1)); }},
      {"throws", [] { throw Error("w is not finite"); }}};
  if (trouble == "rounds") return rounds(on);
  if (trouble == "stopped-alone") {
    if (on.rank() == 1) std::raise(SIGSTOP);
    return;
  }
  if (trouble == "garbled") return garbled(on);
  before_the_second_exchange(on, troubles.at(trouble));
}

}  // namespace

int main(int, char** argv) {
  const auto job = align::join_mpi_job();
  try {
    job->run([&](Communicator& on) { run(argv[1], on); }, std::chrono::milliseconds(500));
    return 0;
  } catch (const Error& e) {
    if (job->rank() == 0) fmt::print(stderr, "assay: {}\n", e.what());
    return 2;
  }
}
