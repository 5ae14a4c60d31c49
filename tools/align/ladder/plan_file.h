#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/align/ladder/check_rung.h"

namespace assay::align {

/// One side of an alignment as a plan describes it.
struct ProviderSettings {
  enum class Kind : std::uint8_t { replay, dump, command };
  Kind kind = Kind::replay;
  std::string fault = {};  ///< of a replay
  std::string path = {};   ///< of dumps
  Command command = {};
};
std::unique_ptr<Provider> make_provider(const ProviderSettings&);

/// What an alignment is to do: a TOML file, or built from options. Paths in the file are relative to it.
///
///     model = "telechat3-105b-tiny"
///     parallel = "tp=2,sp=1,pp=2"       # the target; the ladder is built from it
///     accept_nondeterminism = false     # whether other bits on a rerun are no finding
///     reruns = 2                        # of the reference, for its noise; 0: nothing is run twice
///     precision = "fp32"                # and steps, micro_batches, sequences, length, seed, optimizer, ..
///     [subject]
///     command = "torchrun --nproc_per_node {ranks} train.py --tp {tp} --dump {dump}"
///     timeout = 600                     # seconds; directory and files may be given too
///     [reference]
///     dump = "recorded/{stage}"         # or command; a replay is the default of both
///     [configuration]                   # compared before anything runs
///     subject = "train.sh"              # a file or a folder, or a list of them
///     reference = ["config.json", "tokenizer"]
///     accept = ["hidden_dropout"]       # keys that may differ
///     [[stage]]                         # instead of the ladder that is built
///     name = "tp 2"
///     parallel = "tp=2"                 # and whatever of the above differs
struct PlanFile {
  Work work = {};
  Parallel target = {};
  bool states_micro_batches = false;
  std::int64_t reruns = CheckOptions().reruns;
  std::vector<Rung> rungs = {};  ///< empty: to be built
  ProviderSettings subject = {}, reference = {};
  /// Files and folders with the configuration of each side, compared before anything runs.
  struct ConfigurationFiles {
    std::vector<std::string> subject = {}, reference = {};
    std::vector<std::string> accepted = {};  ///< keys that may differ
  } configuration = {};
  bool accepts_other_bits = false;
};

/// @throws Error  that names the file, the line, what was found and what was expected
PlanFile load_plan(const std::string& file);

/// Stages as load_plan reads them; what they have as `work` has it stands once above them.
/// @param comment  lines above it
std::string to_toml(const Work& work, const std::vector<Rung>&, const std::string& comment);

}  // namespace assay::align
