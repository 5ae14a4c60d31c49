#pragma once

#include <map>
#include <optional>
#include <string>

#include "assay/compare/flow/relation.h"

namespace assay {

/// Numbers of a whole step: the norm of all gradients, the coefficient by which they are clipped, how many
/// tokens chose each expert. They are known by their values in the reference, whatever they are called.
class StepScalars {
 public:
  /// Looks for them in all steps of the reference.
  explicit StepScalars(const SideValues& reference);

  struct Made {
    DerivedValue expected;
    std::string how;
    std::vector<Identity> sources;
  };
  /// What the number is made of on a side; nothing for others.
  std::optional<Made> made(const SideValues&, const Identity&) const;

 private:
  struct Clip {
    Name norm;
    double limit = 0;
    double added = 0;  ///< to the norm: 1e-6 in PyTorch and Megatron-LM
  };
  static std::optional<DerivedValue> norm(const SideValues&, std::int64_t step,
                                          std::vector<Identity>* gradients);
  static std::optional<DerivedValue> clipped(const Clip&, const SideValues&, std::int64_t step);
  static std::optional<DerivedValue> counted(const SideValues&, const Name& index, std::int64_t step,
                                             std::int64_t size, std::vector<Identity>* indices);
  void find_clip(const SideValues&, const Name&, const std::vector<std::int64_t>& steps);

  std::map<Name, bool> norms_;
  std::map<Name, Clip> clips_;
  std::map<Name, Name> counts_;  ///< the index that is counted
};

}  // namespace assay
