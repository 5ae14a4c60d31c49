#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "assay/compare/result/diagnosis.h"

namespace assay {

/// A factor that a program can be wrong by: a known size, a product or ratio of two, the reciprocal, the
/// square root of a size, a power of two.
struct NamedFactor {
  double value;
  std::string name;     ///< "tp x dp", "1/micro-batches", "2^-16"; empty: 2, 4, 0.5, .. name themselves
  int far_fetched = 0;  ///< 0: a size, a product; 1: a ratio, a power of two; 2: a root
};

/// Returns all factors by rising value; of equal values the least far-fetched first.
std::vector<NamedFactor> factor_names(std::span<const KnownSize>);

/// A program's own numbers are short: the value in as few digits as `fits` accepts, at most 3, or as it is.
double shortened(double value, const std::function<bool(double)>& fits);

/// "tp", "pp": the least far-fetched names of |factor|, at most three.
std::vector<std::string> names_of(double factor, std::span<const NamedFactor>);

/// "2 = tp or pp": the factor and its names.
std::string describe_factor(double factor, std::span<const NamedFactor>);

}  // namespace assay
