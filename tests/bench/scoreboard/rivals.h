#pragma once

#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

/// The rules by which others decide whether two runs agree, each on the same pairs of tensors.
namespace assay::bench {

struct Rival {
  std::string name, source;
  /// How far a tensor is over what the rule allows: above 1 it alarms; 0 where the rule does not look.
  double (*score)(const Finding&, const Finding* perturbed, int layers);
};
const std::vector<Rival>& rivals();

/// The layer of a module, from 1; of what is before all 0, behind all layers + 1.
int layer_of(const std::string& module, int layers);

}  // namespace assay::bench
