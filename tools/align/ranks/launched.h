#pragma once

namespace assay::align {

/// How many processes a launcher of MPI has started as one job, this one among them; 1 if none did.
int launched_processes();

}  // namespace assay::align
