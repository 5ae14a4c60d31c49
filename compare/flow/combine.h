#pragma once

#include <optional>

#include "assay/compare/flow/relation.h"

namespace assay {

/// evaluate() and adjoint() of Relation::Kind::combine.
std::optional<Expected> evaluate_combine(const Relation&, const Shape&, const ReadSource&);
std::optional<Expected> adjoint_of_combine(const Relation&, std::size_t source, const Expected& gradient,
                                           const Shape& target, const Shape&, const ReadSource&);

}  // namespace assay
