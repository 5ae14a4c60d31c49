#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"

namespace assay {

/// Statistics of one side, and how they came about.
struct KnownStatistics {
  Statistics values;
  DType dtype = DType::float32;
  bool is_computed = false;  ///< here, from the values: nothing but the last bits is rounded
};

/// What no tensor of so many elements can have of these statistics, in words; empty: nothing.
std::string contradiction(const KnownStatistics&, std::int64_t elements);

/// The statistics that both sides have, with the difference that they may have where every element differs by
/// no more than atol + rtol |reference|. One that differs by more (or is NaN on one side) proves that an
/// element does; the converse proves nothing.
std::vector<ComparedStatistic> compare_statistics(const KnownStatistics& actual,
                                                  const KnownStatistics& reference, std::int64_t elements,
                                                  double atol, double rtol);

/// |actual - reference| / allowed; 0 where no bound holds.
double ratio(const ComparedStatistic&);

}  // namespace assay
