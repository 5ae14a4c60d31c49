#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"
#include "assay/compare/rules/rules.h"
#include "assay/compare/team.h"
#include "assay/dumps/record/dump.h"

namespace assay {

struct DiffOptions {
  std::vector<Policy> policies;  ///< the first decides, the others are reported beside it
  Rules rules;
  std::string only;  ///< glob over tensor names; empty: all
  /// Tensors whose statistics agree pass, though their elements cannot be compared.
  bool accept_statistics = false;
  /// Every result of an operator is judged by its own recorded inputs, too: a fault is found where it is
  /// made, however small, and never blamed on what inherits it.
  bool isolate = false;
  int threads = 1;
  bool exact_sums = false;                                            ///< see measure()
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();  ///< later ones are left out
  bool explain = true;                                                ///< find origins and causes of failures
  std::vector<KnownSize> sizes;  ///< that a factor may come from, beside those in the dumps
  int error_maps = 0;            ///< Finding::error_map for so many that do not pass, the first ones
  std::string repeat;            ///< command line to which " --only 'NAME'" is added; for Finding::repeat
  Team team;                     ///< who shares the work; with the same dumps and options in each process
  /// In bytes of both sides.
  std::function<void(double done, double total, const std::string& name)> progress;
};

/// Matches two dumps by identity, merges the ranks of both sides and judges every pair, in execution order of
/// the reference; tensors that one side lacks stand where their neighbours in execution order do.
/// Of a team the first process has the report, the same as from one alone; the others' has no findings.
Report diff(const Dump& actual, const Dump& reference, const DiffOptions&);

}  // namespace assay
