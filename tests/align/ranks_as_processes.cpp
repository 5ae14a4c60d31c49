#include <fmt/format.h>
#include <gtest/gtest.h>

#include "assay/align/ranks/mpi_job.h"
#include "ranks_under_test.h"

namespace assay::align {

MpiJob* job = nullptr;

std::vector<int> rank_counts() {
  return {job->size()};
}

void run_ranks_under_test(int size, const std::function<void(Communicator&)>& work,
                          std::chrono::milliseconds patience) {
  ASSERT_EQ(size, job->size());
  job->run(work, patience);
}

}  // namespace assay::align

int main(int argc, char** argv) {
  const auto job = assay::align::join_mpi_job();
  if (!job) {
    fmt::print(stderr, "{}: expected mpirun -n 2 or more\n", argv[0]);
    return 2;
  }
  assay::align::job = job.get();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
