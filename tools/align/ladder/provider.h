#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "assay/align/ladder/rung.h"
#include "assay/golden/log.h"

namespace assay::align {

/// What is asked of a side of an alignment.
struct RunOrder {
  const Rung& rung;
  std::filesystem::path folder;  ///< for all that the run writes; it exists
  std::string routing = "";      ///< a dump whose choices of experts are to be taken; empty: free
  std::int64_t rerun = 0;        ///< 0: as usual; else the k-th run with sums in other orders
  std::string modes_of = "";  ///< a strategy that is another function by design, and is to be computed as it
                              ///< is there; empty: the rung's own
  Log log = {};               ///< what is started, and what becomes of it
};

/// What became of it.
struct RunResult {
  enum class State : std::uint8_t { finished, crashed, timed_out, no_dump };
  State state = State::finished;
  std::string problem = {};           ///< a sentence, unless it finished
  std::filesystem::path dump;         ///< of one that finished
  std::filesystem::path output = {};  ///< what it printed, if that was kept
  double seconds = 0;
};
std::string_view name(RunResult::State);

/// Where the numbers of one side come from: the built-in replay, dumps that were recorded before, or a
/// command that trains.
class Provider {
 public:
  virtual ~Provider() = default;
  /// Never throws for what the run itself does wrong.
  virtual RunResult run(const RunOrder&) = 0;
  /// Whether it has runs of that configuration; why not.
  virtual std::string objection(const Rung&) const { return ""; }
  /// Whether routing can be pinned.
  virtual bool takes_routing() const { return false; }
  /// Whether its dumps are made by its runs, and may be deleted when they have been judged.
  virtual bool makes_dumps() const { return true; }
  /// Whether runs of the same work are others in another stage.
  virtual bool depends_on_name() const { return false; }
  /// @throws Error  if the rungs cannot show what it is asked to do
  virtual void check(const std::vector<Rung>&) const {}
  /// Whether several runs may take place at the same time.
  virtual bool runs_beside() const { return false; }
  /// Whether its exact precision is exact: its bits do not depend on the order of sums.
  virtual bool computes_exactly() const { return false; }
  /// Whether runs of these works under one strategy can differ.
  virtual bool tells_apart(const Work&, const Work&) const { return true; }
  /// Whether a rerun adds up in another order.
  virtual bool reorders() const { return false; }
  /// Whether a second run may have other bits.
  virtual bool may_vary() const { return false; }
  /// All that decides what a run gives: what passed once with the same need not run again. Empty: that is not
  /// known.
  virtual std::string content(const Rung&) const = 0;
  /// "replay with fault F001", "torchrun train.py ..": for reports.
  virtual std::string text() const = 0;
};

/// @param fault  of the catalogue, planted in runs where it can show; empty: none
std::unique_ptr<Provider> replay_provider(std::string fault);

/// @param path  of a dump; with placeholders if there is one for each rung: "runs/{stage}"
std::unique_ptr<Provider> dump_provider(std::string path);

struct Command {
  std::string line;  ///< for /bin/sh, with placeholders
  std::chrono::seconds timeout = std::chrono::minutes(10);
  std::string directory = {};  ///< in which it runs; empty: here
  std::vector<std::string> files =
      {};  ///< what decides its results beside the line; empty: that is not known
};
/// @throws Error  for a placeholder that does not exist, and for a line without {dump}
std::unique_ptr<Provider> command_provider(Command);

/// The text with the numbers of a run in the place of {tp}, {dump}, ..; "{{" is a brace.
/// @throws Error  for a placeholder that does not exist, with those that do
std::string filled_in(std::string_view text, const RunOrder&);

}  // namespace assay::align
