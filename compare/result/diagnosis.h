#pragma once

#include <cstdint>
#include <string>

#include "assay/compare/result/cause.h"

namespace assay {

/// The cause of a difference with its numbers, as far as the numbers prove it.
struct Diagnosis {
  Cause cause = Cause::factor;
  CauseParameters parameters = {};
  double residual = 0;  ///< largest error / allowed that this cause leaves: at most 1
};

/// "actual = 2 x reference (2 = tp)": the same words in all reports.
std::string sentence(const Diagnosis&);

/// Whether a diagnosis is one that was expected: of the same cause, with the parameters that are stated
/// there, numbers to four digits. Of `factor_names` one is enough.
bool agrees(const Diagnosis&, const Diagnosis& expected);

/// A size that may explain a wrong factor or a wrong cut: {"tp", 2}, {"micro-batches", 4}.
struct KnownSize {
  std::string name;
  std::int64_t size = 1;
};

}  // namespace assay
