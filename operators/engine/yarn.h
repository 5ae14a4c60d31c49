#pragma once

#include <cmath>
#include <vector>

#include "assay/operators/engine/list.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

/// YaRN's factors of scores are the squares of these: 0.1 w ln s + 1, w = 1 (DeepSeek-V3, Kimi K2) or 0.707
/// (DeepSeek-V2), s as in rope (arXiv:2309.00071 eq. 22, modeling_deepseek.py).
inline std::vector<double> yarn_mscales() {
  std::vector<double> scales;
  for (const double s : seen_numbers(ops::rope, "yarn.factor")) {
    for (const double w : {1., .707}) scales.push_back(0.1 * w * std::log(s) + 1);
  }
  return scales;
}

}  // namespace assay
