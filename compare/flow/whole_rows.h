#pragma once

#include <optional>

#include "assay/compare/flow/relation.h"

namespace assay {

/// evaluate() and adjoint() of Relation::Kind::scattered, joined and stretch.
std::optional<DerivedValue> evaluate_whole_rows(const Relation&, const Shape&, const ReadSource&);
std::optional<DerivedValue> adjoint_of_whole_rows(const Relation&, std::size_t source,
                                                  const DerivedValue& gradient, const Shape& target,
                                                  const Shape&, const ReadSource&);

}  // namespace assay
