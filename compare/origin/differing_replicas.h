#pragma once

#include <cstddef>
#include <vector>

#include "assay/compare/causes/open_failures.h"
#include "assay/compare/origin/decision.h"
#include "assay/compare/origin/inputs.h"

namespace assay {

/// Tensors of which ranks hold different replicas, and where those differences come from.
class DifferingReplicas {
 public:
  /// Both must outlive this.
  DifferingReplicas(const std::vector<Finding>&, const Inputs&);

  bool contains(std::size_t i) const { return differ_[i]; }
  /// The first of these; OpenFailures::none if no replicas of them differ.
  std::size_t first_of(const std::vector<std::size_t>&) const;
  /// Ranks that disagree made the difference, unless what they made it from differs between them, too.
  /// @param inputs  of finding `i`
  Decision origin_of(std::size_t i, const std::vector<std::size_t>& inputs) const;
  /// What makes ranks take different steps: one of the inputs, or the gradients by whose norms each rank
  /// clips its own.
  std::size_t behind_step(std::size_t i, const std::vector<std::size_t>& inputs) const;
  /// Takes a failure, from which later ones may follow.
  void add(std::size_t i);

 private:
  const std::vector<Finding>& findings_;
  const Inputs& inputs_;
  std::vector<bool> differ_;
  OpenFailures open_;
};

}  // namespace assay
