#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "assay/align/faults/fault.h"
#include "assay/align/ladder/rung.h"
#include "assay/compare/result/finding.h"
#include "record.h"

/// The runs of the scoreboard.
namespace assay::bench {

class Trials {
 public:
  /// @param work  a folder for dumps, most of which are removed again
  explicit Trials(std::filesystem::path work);

  /// A planted fault, under its own conditions: `align` from a single device up, and the rules of others on
  /// the dumps in which it shows.
  /// @param precision  empty: the fault's own
  Record fault(const align::Fault&, const std::string& precision);

  /// All gradients from one layer's norm on backwards are too large by a factor, with and without
  /// `--isolate`.
  Record scale(const align::Work&, int layer, double factor);

  /// A run without a fault under a strategy: what is found is a false alarm.
  Record clean(const align::Work&, const align::Parallel&);

 private:
  std::map<std::string, RivalScore> ask_rivals(const std::filesystem::path& subject,
                                               const std::filesystem::path& reference, const align::Work&,
                                               std::string_view right_tensor);
  using Noise = std::map<std::string, Finding>;
  const Noise& noise_of(const align::Work&, const std::filesystem::path& reference);

  const std::filesystem::path work_;
  std::map<std::string, Noise> noise_;  ///< by work: what a perturbed input changes
};

}  // namespace assay::bench
