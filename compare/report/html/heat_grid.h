#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"

namespace assay {

/// The tensors of a report sorted into a table, for a heat map.
struct HeatGrid {
  std::string title;
  std::vector<std::string> rows, columns;  ///< labels; at most 96 and 48
  std::vector<int> row, column;            ///< of each finding; -1: in no cell
};

/// Layer (the first number in the module's path) by kind: the path without numbers, and the slot, as far as
/// that makes a readable number of columns. Of check: operator by dtype. Nothing where a table would say no
/// more than a list.
std::optional<HeatGrid> layer_by_kind(const Report&);
/// Layer by expert ("experts.3"); nothing where no module has experts.
std::optional<HeatGrid> layer_by_expert(const Report&);

}  // namespace assay
