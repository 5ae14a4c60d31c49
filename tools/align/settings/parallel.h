#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "assay/align/arithmetic/reduce_order.h"

namespace assay::align {

/// How the tokens of an expert find its rank (docs/semantics.md D6).
enum class Dispatch : std::uint8_t { alltoall, allgather, hierarchical };

/// How attention sees the whole of a sequence that is cut (docs/semantics.md D5).
enum class ContextMode : std::uint8_t { ring, ulysses };

/// In which order a stage works on micro-batches (docs/semantics.md D8 to D10).
enum class Schedule : std::uint8_t { one_f_one_b, interleaved, zero_bubble, dualpipe };

/// Whether experts stay on their ranks, or move after each step so that the ranks have as much to do.
enum class ExpertPlacement : std::uint8_t { fixed, dynamic };

/// What is computed again in backward instead of kept.
enum class Recompute : std::uint8_t { none, full, mla, permute, activation };

/// A parallel strategy, as `--parallel tp=2,pp=2` gives it. World size tp cp dp pp; etp ep divides tp cp dp.
struct Parallel {
  std::int64_t tp = 1;  ///< tensor parallel
  bool sp = false;      ///< sequence parallel: between the tensor parallel regions each rank has its tokens
  std::int64_t cp = 1;  ///< context parallel
  ContextMode context = ContextMode::ring;
  std::int64_t dp = 1;    ///< data parallel
  std::int64_t zero = 0;  ///< what dp and cp shard: 1 optimizer states, 2 and gradients, 3 and parameters
  std::int64_t pp = 1;    ///< pipeline parallel
  std::int64_t vpp = 1;   ///< chunks of layers of a pipeline rank
  Schedule schedule = Schedule::one_f_one_b;
  std::vector<std::int64_t> stages =
      {};               ///< layers of each stage; empty: as even as can be, the first longer
  std::int64_t ep = 1;  ///< expert parallel
  Dispatch dispatch = Dispatch::alltoall;
  std::int64_t node = 1;  ///< of hierarchical dispatch: how many ranks of ep share a node
  std::int64_t etp = 1;   ///< expert tensor parallel
  ExpertPlacement placement = ExpertPlacement::fixed;
  bool redistribute = false;  ///< samples change ranks of dp so that attention has as much to do on each
  Recompute recompute = Recompute::none;
  bool swap = false;  ///< activations leave the device between forward and backward
  ReduceOrder reduce = ReduceOrder::ranks;

  std::int64_t ranks() const { return tp * cp * dp * pp; }
  bool operator==(const Parallel&) const = default;
};

/// More ranks than any replay on a machine can have.
constexpr std::int64_t largest_world_size = 4096;

/// "tp=2,pp=2,dispatch=allgather".
/// @param option  that errors name
/// @throws Error  for an unknown key and for a value that it cannot have, with those it can
Parallel parse_parallel(std::string_view, std::string_view option = "--parallel");
/// What parse_parallel reads; what has its default is left out, "" is a single device.
std::string to_string(const Parallel&);

}  // namespace assay::align
