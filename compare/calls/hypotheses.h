#pragma once

#include <string>
#include <vector>

#include "assay/operators/engine/operator.h"

namespace assay {

/// A row by which recorded results of an operator are judged, or explained.
struct HypothesisRow {
  /// An admissible row makes a result right. A mistake is tried on a wrong one: if it makes the result within
  /// its bound it is the cause.
  bool admissible = true;
  std::string kind;    ///< "attribute", "layout", "gain", "arithmetic", "choice" or "weights"
  std::string what;    ///< "eps = 1e-6"
  std::string source;  ///< who uses it, or who says so
};

/// Returns the rows of an operator in the order in which they are tried, admissible ones first.
std::vector<HypothesisRow> hypotheses_for(const Operator&);

}  // namespace assay
