#pragma once

#include "assay/align/faults/fault.h"

/// The areas of the catalogue, each with its faults in a file of its own.
namespace assay::align {

std::vector<Fault> reduction_faults();
std::vector<Fault> loss_scale_faults();
std::vector<Fault> expert_faults();
std::vector<Fault> position_faults();
std::vector<Fault> stage_faults();
std::vector<Fault> recompute_faults();
std::vector<Fault> zero_faults();
std::vector<Fault> norm_faults();
std::vector<Fault> optimizer_faults();
std::vector<Fault> precision_faults();
std::vector<Fault> constant_faults();

}  // namespace assay::align
