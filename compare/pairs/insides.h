#pragma once

#include <string>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/dumps/record/dump.h"

namespace assay {

/// Leaves out on both sides what shows how modules make their results (Record::within) where the two sides
/// make them differently: functions that a module calls in another number, order or shape, and what a
/// container is given or returns on one side only. What follows from them is recorded by itself. Returns a
/// note with their number; empty: nothing was left out.
std::string leave_out_other_insides(std::vector<LogicalTensor>& actual,
                                    std::vector<LogicalTensor>& reference);

/// A replay records every operator that it computes, a program its modules: of a replay against a program
/// activations that only one of them has are left out. Weights, their gradients and states are the same of
/// both. Returns a note with their numbers; empty: both are replays, or programs.
std::string leave_out_operators_of_replay(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                                          const Dump& reference,
                                          std::vector<LogicalTensor>& reference_tensors);

/// Losses and what an optimizer makes, where the other side's recorder takes none (Dump::has_steps). Returns
/// a note with their number; empty: both take them, or none does.
std::string leave_out_steps(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                            const Dump& reference, std::vector<LogicalTensor>& reference_tensors);

}  // namespace assay
