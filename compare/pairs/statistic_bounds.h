#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"

namespace assay {

/// Statistics of one side, and their origin.
struct KnownStatistics {
  Statistics values;
  DType dtype = DType::float32;
  bool is_computed = false;  ///< computed here from the values: only the last bits are rounded
};

/// Describes a contradiction in the statistics of a tensor with this number of elements; empty: none.
std::string contradiction(const KnownStatistics&, std::int64_t elements);

/// Returns the common statistics of both sides, each with the largest difference that elements within atol +
/// rtol |reference| can make. A larger difference (or NaN on one side) proves that an element is outside; a
/// smaller one proves nothing.
std::vector<ComparedStatistic> compare_statistics(const KnownStatistics& actual,
                                                  const KnownStatistics& reference, std::int64_t elements,
                                                  double atol, double rtol);

/// |actual - reference| / allowed; 0 if no bound holds.
double ratio(const ComparedStatistic&);

}  // namespace assay
