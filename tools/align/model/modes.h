#pragma once

#include <string>
#include <vector>

#include "assay/align/model/model.h"
#include "assay/align/settings/parallel.h"

/// What some strategies are another function for, by design (docs/semantics.md E, "N"): each rank decides by
/// the tokens that it sees. Another strategy can replay it, a single device too.
namespace assay::align {

struct Modes {
  /// How many micro-batches with successive numbers count the tokens of experts together for a balance loss:
  /// those that the ranks of an expert parallel group (ep_group), or of dp (dp_group), work on at the same
  /// time (Pangu Ultra MoE, arXiv 2505.04519, section 3.1).
  std::int64_t counted_together = 1;
  /// How many micro-batches with successive numbers exchange samples.
  std::int64_t exchange_samples = 1;
  /// Of the ranks with a micro-batch's tokens each drops some by itself.
  std::int64_t tp = 1, cp = 1;
  ContextMode context = ContextMode::ring;

  std::int64_t ranks() const { return tp * cp; }
  bool operator==(const Modes&) const = default;
};

/// @throws Error  if a group that counts together has some ranks of a micro-batch and not the others
Modes modes_of(const Model&, const Parallel&);

/// The rows of a micro-batch's tokens that each of the ranks gives to the experts, rank after rank.
std::vector<std::int64_t> rows_by_rank(const Modes&, std::int64_t sequences, std::int64_t length);

/// A sentence for each of them in which it is another function than a single device.
std::vector<std::string> other_functions(const Modes&);

/// Whether a strategy can compute in these modes, its own or others.
/// @param micro_batches  of a step
/// @throws Error  with the reason
void check_modes(const Model&, const Modes&, const Parallel&, std::int64_t micro_batches);

}  // namespace assay::align
