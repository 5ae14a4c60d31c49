#pragma once

#include <cstdint>
#include <vector>

namespace assay {

/// Where the errors of one pair lie. The tensor is seen as a matrix: its last dimension makes the columns,
/// all others the rows; the matrix is covered by a grid of at most 64 x 64 cells.
struct ErrorMap {
  std::int64_t rows = 0, columns = 0;  ///< of the matrix
  int grid_rows = 0, grid_columns = 0;
  /// False: the rule allows no error by element (bits, a baseline), and the cells hold |actual - reference|.
  bool in_units_of_allowed = true;
  /// The largest error / allowed of each cell; inf where NaN or Inf differ.
  std::vector<double> cells;
  std::int64_t outside = 0;  ///< elements outside; without an allowed error those that differ
  /// The smallest box that holds them, inclusive; meaningless where there are none.
  std::int64_t first_row = 0, last_row = 0, first_column = 0, last_column = 0;

  struct Element {
    std::int64_t at = 0;  ///< flat, C order
    double actual = 0, reference = 0, error = 0;
    double ratio = 0;  ///< error / allowed
  };
  std::vector<Element> worst;  ///< at most 8, the worst first

  /// The first row of a row of cells; the end for `grid_rows`. Columns likewise.
  std::int64_t row_of(int cell) const { return begin_of(cell, grid_rows, rows); }
  std::int64_t column_of(int cell) const { return begin_of(cell, grid_columns, columns); }

 private:
  static std::int64_t begin_of(int cell, int cells, std::int64_t extent) {
    return (cell * extent + cells - 1) / cells;
  }
};

}  // namespace assay
