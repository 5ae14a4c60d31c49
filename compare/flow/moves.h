#pragma once

#include <functional>
#include <vector>

#include "assay/compare/flow/relation.h"

namespace assay {

/// Where an element of a target comes from: of a relation that moves elements. Adjoint: each element of a
/// source is the sum over its places in the target.
struct Moved {
  std::size_t source = 0;
  std::int64_t from = 0;
};
using Map = std::function<void(std::int64_t target, Moved)>;

/// The shape with its last dimension in pieces of that width: [.., pieces, width]; of a larger width the rows
/// that it has side by side: [rows, width]. As it is where they do not fit.
Shape pieces_of(Shape, std::int64_t width);

/// Calls f for every element that comes from a source; returns false if sizes do not fit.
bool for_each_column(const Relation&, const Shape& target, const std::vector<Shape>& sources, const Map& f);
bool for_each_row(const Relation&, const Shape& target, const Shape& source, const SideTensor& index,
                  const Map& f);

/// The places of an index, those of the first choice before those of the second, each in their order.
std::vector<std::int64_t> places_by_choice(const SideTensor& index);

}  // namespace assay
