#include "ranks_under_test.h"

namespace assay::align {

std::vector<int> rank_counts() {
  return {2, 3, 8};
}

void run_ranks_under_test(int size, const std::function<void(Communicator&)>& work,
                          std::chrono::milliseconds patience) {
  run_ranks(size, work, patience);
}

}  // namespace assay::align
