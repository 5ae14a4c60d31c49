#pragma once

#include <cstddef>
#include <span>

#include "assay/compare/measure/partial.h"
#include "assay/golden/exact_sum.h"

namespace assay {

/// The exact sums behind the means, norms and deviations of a pair; each is rounded once, at the end. The
/// order does not matter, so threads add elements as they come. The sum of relative errors is exact, its
/// quotients are float64.
class ExactSums {
 public:
  /// Windows of a pair, element by element.
  void add(DType actual, DType reference, std::span<const std::byte> actual_bytes,
           std::span<const std::byte> reference_bytes);
  void merge(const ExactSums&);
  /// Puts them in the place of the sums of `partial`, which counted the same elements.
  void replace(Partial& partial) const;

 private:
  template <class T>
  void add_values(std::span<T> a, std::span<T> r);
  void add_integers(DType actual, DType reference, std::span<const std::byte> a,
                    std::span<const std::byte> r);

  // Of products each factor is as it is: a r is summed negated, so that (a - r)^2 is a sum of them.
  ExactSum abs_, actual_, reference_, actual_square_, reference_square_, negative_product_, relative_;
};

}  // namespace assay
