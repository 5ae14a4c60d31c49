#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "assay/compare/flow/relation.h"

namespace assay {

/// Whether rows are counted by loops, each over a fixed number with a fixed stride, as slices, windows and
/// transposes do: in an order that no data decides.
bool follow_loops(std::span<const std::int64_t> rows);
/// Whether that holds for the rows of each source of a relation of columns.
bool follow_loops(const Relation& joined_rows);

/// Which row of a source each row of a target is, bit for bit, both along their last dimension.
struct RowChoice {
  static constexpr std::int64_t none = -1;
  std::vector<std::int64_t> rows;  ///< of equal ones the first; none: it is no row of the source
  bool is_unique = true;           ///< no row was taken twice, or has an equal one in the source
};
/// Nothing if they have rows of different widths, or one of them was not moved but added up.
std::optional<RowChoice> chosen_rows(const SideTensor& source, const SideTensor& target);

/// Whether two choices took the same rows, in any order.
bool have_the_same_rows(const RowChoice&, const RowChoice&);

/// The index that gathers them, as Relation::each_number has it. A row that is none of the source should have
/// been the nearest one.
/// @param is_unique  nothing where equal rows do not tell which of them was chosen
std::shared_ptr<const SideTensor> index_of_chosen_rows(const SideTensor& source, const SideTensor& target,
                                                       bool is_unique);

}  // namespace assay
