#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "assay/align/ranks/communicator.h"

namespace assay::align {

// The tests of a Communicator run on each transport: ranks as threads, and as processes under mpirun, where a
// test is run by every process.

/// How many ranks the transport can have.
std::vector<int> rank_counts();
/// Runs `work` in that many ranks; throws the first problem, as align::run_ranks does.
void run_ranks_under_test(int size, const std::function<void(Communicator&)>& work,
                          std::chrono::milliseconds patience);

}  // namespace assay::align
