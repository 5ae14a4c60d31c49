#pragma once

#include <optional>

#include "assay/compare/flow/relation.h"

namespace assay {

/// evaluate() and adjoint() of Relation::Kind::combine.
std::optional<DerivedValue> evaluate_combine(const Relation&, const Shape&, const ReadSource&);
std::optional<DerivedValue> adjoint_of_combine(const Relation&, std::size_t source,
                                               const DerivedValue& gradient, const Shape& target,
                                               const Shape&, const ReadSource&);

}  // namespace assay
