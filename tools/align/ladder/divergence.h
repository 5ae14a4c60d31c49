#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/align/ladder/check_rung.h"
#include "assay/align/ladder/traffic.h"
#include "assay/compare/result/diagnosis.h"

namespace assay::align {

/// The first tensor that is wrong in the smallest configuration that fails, and what is known about it.
struct Divergence {
  SwitchSet strategies;     ///< the smallest set that fails
  std::string passes = {};  ///< what passes without one of them: "tp + sp fails, tp alone passes"
  std::string phase, module, tensor;
  std::int64_t step = 0, micro_batch = -1;
  std::string origin = {};                           ///< created here, with the reason
  std::string cause = {};                            ///< the diagnosis as a sentence; else what is wrong
  std::optional<Diagnosis> diagnosis = {};           ///< its own
  std::optional<Diagnosis> diagnosis_of_other = {};  ///< without one: of a root beside it
  std::vector<Traffic> behind = {};                  ///< collectives that it came through
  std::size_t finding = 0;                           ///< in the report
  std::vector<std::size_t> others = {};              ///< further roots, which do not follow from it
};

/// Of a rung that failed.
std::optional<Divergence> divergence_of(const RungResult&, const std::vector<Traffic>&);

}  // namespace assay::align
