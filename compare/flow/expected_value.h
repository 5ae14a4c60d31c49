#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/scale_test.h"
#include "assay/compare/flow/relation.h"
#include "assay/golden/tensor.h"

namespace assay {

/// What a tensor should be by the values that it was made of.
struct RightValue {
  Tensor value;                 ///< float64
  std::vector<double> allowed;  ///< error of each element
  struct Term {
    std::string name;
    Tensor value;
  };
  std::vector<Term> terms = {};  ///< of a sum
};

/// What element i of a recorded tensor may be off by where this is expected.
double allowed(const DerivedValue&, const SideTensor&, std::size_t i);
/// The largest error / allowed; infinite for an element that should have been moved only.
/// @param outside  the number of elements beyond what is allowed
double ratio(const DerivedValue&, const SideTensor&, std::int64_t& outside);
/// The same on several ranks.
double ratio_of_ranks(DerivedValue, const SideTensor&, int ranks, std::int64_t& outside);
/// What recorded values add up to, as a whole: a factor that is smaller than a rounding. Nothing where other
/// errors than those of additions are in it.
std::optional<ScaleError> scale_of_sum(const DerivedValue&, const SideTensor&);
/// Nothing for another shape, and for integers.
std::optional<RightValue> right_value(const DerivedValue&, const SideTensor&);

}  // namespace assay
