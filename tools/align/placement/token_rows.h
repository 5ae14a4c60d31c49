#pragma once

#include <cstdint>
#include <vector>

#include "assay/align/placement/mesh.h"

/// The tokens of each rank where context parallel cuts the sequences (context_parallel.cpp).
namespace assay::align {

/// Whether keys and values go around a ring.
bool is_ring(const Mesh&);

/// The positions in the sequence of the tokens of this rank, or of another along cp, in its order.
std::vector<std::int64_t> positions_of(const Mesh&, std::int64_t length);
std::vector<std::int64_t> positions_of(const Mesh&, std::int64_t length, std::int64_t rank_of_cp);
/// And the rows of this rank's tokens among all of a micro-batch.
std::vector<std::int64_t> token_rows(const Mesh&, std::int64_t sequences, std::int64_t length);

}  // namespace assay::align
