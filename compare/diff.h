#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/named_source.h"
#include "assay/compare/origin/judging_progress.h"
#include "assay/compare/origin/rerun_noise.h"
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
  /// Accepts a pair without values on one side if its statistics agree.
  bool accept_statistics = false;
  /// Accepts a pair that agrees by sketch.
  bool accept_sketches = false;
  /// The rule of the whole run alone decides. Else every tensor is also judged by what the actual side made
  /// it of: this finds a fault where it is made, however small it is, blames no tensor that inherits it, and
  /// exempts amplified rounding.
  bool end_to_end = false;
  /// Writes calls that are wrong on their own inputs as operator cases, each into a folder below this one.
  /// Empty: nothing is written.
  std::filesystem::path cases;
  /// The noise of reruns of the reference (bitwise_difference), asked for only where a failure is undecided.
  std::function<RerunNoise()> noise;
  int threads = 1;
  bool exact_sums = false;                                            ///< see measure()
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();  ///< later steps are left out
  /// Find origins and causes of failures. Without it failures stand as the end-to-end rules say.
  bool explain = true;
  std::vector<KnownSize> sizes;  ///< possible factors, besides the sizes that the dumps state
  int error_maps = 0;            ///< the first so many findings that do not pass get a Finding::error_map
  std::string repeat;            ///< the command line of Finding::repeat, without " --only 'NAME'"
  Log log;                       ///< counts at info, every tensor at trace
  Team team;                     ///< the processes that share the work; each has the same dumps and options
  /// `done` and `total` are bytes of both sides.
  std::function<void(double done, double total, const std::string& name)> progress;
  /// Of tensors that are judged by what they were made of, after all were compared.
  JudgingProgress judging;
};

/// Matches the tensors of two dumps by identity, merges the ranks of each side and judges every pair. The
/// findings are in the execution order of the reference; a tensor that the reference lacks stands beside its
/// neighbours in the actual side's order.
/// In a team, the first process returns the report that a single process would return. The reports of the
/// other processes have no findings.
Report diff(const Dump& actual, const Dump& reference, const DiffOptions&);

/// Compares two runs of one program bit for bit, and explains nothing: the difference of reruns is their
/// noise (add_rerun).
Report bitwise_difference(const Dump&, const Dump&, const Rules&, int threads, const Log&);

/// The same for tensors in memory, which are read where they lie: {{"y", y}} with an array of xtensor's in
/// any layout. A name is a module's, or as in plain files (plain_tensor.h):
/// "layers.1.norm@phase=backward,slot=grad,arg=weight".
/// @throws Error  if two tensors of a side have one name
Report diff(std::span<const NamedSource> actual, std::span<const NamedSource> reference, const DiffOptions&);
inline Report diff(std::initializer_list<NamedSource> actual, std::initializer_list<NamedSource> reference,
                   const DiffOptions& options) {
  return diff(std::span(actual.begin(), actual.size()), std::span(reference.begin(), reference.size()),
              options);
}

}  // namespace assay
