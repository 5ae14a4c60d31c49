#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/pairs/pair.h"
#include "assay/compare/result/finding.h"

namespace assay {

/// Modules that one operator makes though parts of them were recorded, too: the activation inside of a
/// module of experts, which calls it for each expert in an order of its own, or fuses it away. Results that
/// follow from what the whole was given say all that its parts could.
class Wholes {
 public:
  /// @param calls  of the reference
  Wholes(const std::vector<Finding>&, const std::vector<Pair>&, const RecordedCalls& calls);
  /// The results of the nearest whole around a tensor, of its micro-batch and phase, gradients of parameters
  /// included; empty if it is in none.
  std::vector<std::size_t> results_around(const Identity&) const;
  /// The results of the modules in a container: what shows how it makes them (Record::within) is settled by
  /// them.
  std::vector<std::size_t> results_in(const Identity& container) const;
  /// The results of each module around a tensor that has some, the nearest first; of what nothing around
  /// hands back, the gradients of its own parameters.
  std::vector<std::vector<std::size_t>> results_of_containers(const Identity&) const;
  /// The results, which both sides have, of the call that was given an input or makes a result: of a mask
  /// that one side alone needs, or weights that it alone returns, they say enough.
  std::vector<std::size_t> results_of(const Identity&) const;
  /// Whether that call has a result on one side which the other lacks.
  bool has_lone_result(const Identity&, bool on_actual) const;

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, Phase, std::string>;
  std::map<Key, std::vector<std::size_t>> results_;  ///< by step, micro-batch, phase and module
  std::map<std::pair<Key, std::int64_t>, std::vector<std::size_t>> outputs_;  ///< of each call of all modules
  std::set<std::tuple<Key, std::int64_t, bool>> lone_;  ///< calls, and whether it is the actual side's
  std::map<Key, std::vector<std::size_t>> all_;         ///< of all modules, gradients too
  std::map<Key, std::vector<std::size_t>> made_;  ///< of all modules, gradients too, without what is within
};

}  // namespace assay
