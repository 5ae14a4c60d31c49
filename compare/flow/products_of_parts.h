#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/relation.h"

namespace assay {

/// What a product of parts makes; nothing if a source is missing or does not fit.
std::optional<DerivedValue> evaluate_product(const Relation&, const Shape& shape, const ReadSource&);
/// What the gradient of the product gives to a source: 0 beside its part.
std::optional<DerivedValue> adjoint_of_product(const Relation&, std::size_t source,
                                               const DerivedValue& gradient, const Shape& target,
                                               const Shape& shape, const ReadSource&);

/// Finds values that are products of two parts of earlier ones, element by element: the gates that a
/// projection makes beside what they let through, the beginning of what a causal convolution makes.
class ProductsOfParts {
 public:
  ProductsOfParts(const SideValues& side, const EarlierValues& candidates)
      : side_(side), candidates_(candidates) {}
  /// Nothing for a product of two whole values: that is a call.
  std::optional<Relation> of_parts(const LogicalTensor&, const SideTensor&) const;

 private:
  struct Factor {
    std::size_t candidate;
    Relation::Part part;
    std::vector<double> begin;  ///< its first elements
    bool is_whole;
  };
  std::vector<Factor> factors(const LogicalTensor&) const;

  const SideValues& side_;
  const EarlierValues& candidates_;
};

}  // namespace assay
