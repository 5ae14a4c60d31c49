#pragma once

#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "assay/align/ladder/configuration.h"
#include "assay/align/ladder/provider.h"
#include "assay/compare/diff.h"

namespace assay::align {

/// What is trained by both and judged the same way.
struct Opponents {
  Provider& subject;
  Provider& reference;
};

struct CheckOptions {
  std::filesystem::path folder;  ///< of all runs
  std::vector<Policy> policies;  ///< for what promises no bits
  Rules rules;                   ///< of the subject's names and layouts
  int threads = 1;
  bool keep = false;  ///< dumps of what passed, too
  /// " --rules r.toml", " --tolerance telechat3": for the command that repeats a comparison.
  std::string rules_as_given = {}, tolerances_as_given = {};
  /// Of the reference with its sums in other orders, where a failure is undecided: what they differ by is
  /// noise. 0: nothing is run again, not for determinism either.
  std::int64_t reruns = 2;
  bool accepts_other_bits = false;  ///< of a second run of the same program
  Log log = {};                     ///< what is run, by which rule it is judged, what is decided
};

/// What was found of the tensors of a phase.
struct PhaseResult {
  std::int64_t compared = 0, failed = 0, inherited = 0, not_compared = 0;
  double worst = 0;  ///< largest error / allowed of what passed
};

struct RungResult {
  enum class State : std::uint8_t {
    passed,
    failed,
    trouble,   ///< the subject gave nothing to judge: it crashed, hung, wrote half a dump, ..
    held,      ///< it has what failed already in a smaller rung
    left_out,  ///< there are no runs of it
  };
  Rung rung;
  State state = State::passed;
  std::string reason = {};                 ///< why it did not pass, or was not run
  bool from_cache = false;                 ///< it passed before, with the same content
  bool pinned = false;                     ///< with the reference's choices of experts
  std::string rule = {};                   ///< by which it was judged
  std::string exempt = {};                 ///< of one that passed: ", 12 exempt by amplified rounding"
  std::array<PhaseResult, 3> phases = {};  ///< forward, backward, optimizer
  std::vector<ConfigurationCheck> configuration = {};  ///< of the single device
  std::vector<std::string> notes = {};
  std::optional<Report> report = {};                   ///< of one that failed
  std::filesystem::path page = {};                     ///< the same to look at, in the rung's folder
  std::filesystem::path subject = {}, reference = {};  ///< dumps
  double seconds = 0;
};
std::string_view name(RungResult::State);

/// The findings of an explained report that are neither right, by their rule or by themselves, nor inherited.
std::vector<std::size_t> roots_of(const Report&);

/// Runs a rung on both sides and compares what they recorded. The reference runs on a single device, once for
/// all rungs with the same work. Several threads may run rungs.
class RungCheck {
 public:
  RungCheck(Opponents opponents, CheckOptions options)
      : opponents_(opponents), options_(std::move(options)) {}

  RungResult run(const Rung&);
  /// The runs on a single device that a rung was judged by.
  /// @throws Error  if the reference does not give one
  std::filesystem::path reference_for(const Rung&);

 private:
  Log log_of(const std::filesystem::path& folder) const;
  bool runs_reference();  // of any rung, now
  void judge(RungResult&);
  bool is_bitwise(const Rung&) const;
  std::vector<Policy> policies_for(const Rung&) const;
  struct Asked {
    std::vector<Policy> policies;
    std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
    bool explain = false;
    std::string only = {};
  };
  Report compare(RungResult&, const Asked&);
  void explain(RungResult&, std::int64_t first_failing_step);
  RunResult run_side(Provider&, RunOrder) const;
  RunResult run_reference(const Rung&, const std::filesystem::path& folder, std::int64_t rerun);
  const RerunNoise& noise_for(const Rung&);
  Report difference(const std::filesystem::path&, const std::filesystem::path&) const;
  void check_determinism(RungResult&, const std::string& routing);
  void diagnose_by_tolerance(RungResult&);

  Opponents opponents_;
  CheckOptions options_;
  std::mutex mutex_;  ///< of the references
  std::map<std::string, std::filesystem::path> references_;
  std::map<std::string, std::string> no_references_;    ///< why a work has none
  std::map<std::filesystem::path, RerunNoise> noises_;  ///< by the first run
};

}  // namespace assay::align
