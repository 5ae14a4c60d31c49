#include <gtest/gtest.h>

#include "assay/align/mpi_world.h"
#include "ranks_under_test.h"

namespace assay::align {

const MpiWorld* world = nullptr;

std::vector<int> rank_counts() {
  return {world->size()};
}

void run_ranks_under_test(int size, const std::function<void(Communicator&)>& work,
                          std::chrono::milliseconds patience) {
  ASSERT_EQ(size, world->size());
  world->run(work, patience);
}

}  // namespace assay::align

// Not GoogleTest's own: MPI must be finalized before static variables are gone.
int main(int argc, char** argv) {
  const assay::align::MpiWorld world;
  assay::align::world = &world;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
