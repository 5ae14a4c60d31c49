#pragma once

#include <cstdint>
#include <vector>

namespace assay {

/// The places of the errors of one pair. The tensor is seen as a matrix: the last dimension makes its
/// columns, the other dimensions make its rows. A grid of at most 64 x 64 cells covers the matrix.
struct ErrorMap {
  std::int64_t rows = 0, columns = 0;  ///< of the matrix
  int grid_rows = 0, grid_columns = 0;
  /// False: the rule allows no error per element (bits, a baseline), and the cells hold |actual - reference|.
  bool in_units_of_allowed = true;
  /// The largest error / allowed of each cell; infinite where NaN or Inf differ.
  std::vector<double> cells;
  std::int64_t outside = 0;  ///< elements over the allowed error; without one, elements that differ
  /// The smallest box around these elements, inclusive; meaningless if there are none.
  std::int64_t first_row = 0, last_row = 0, first_column = 0, last_column = 0;

  struct Element {
    std::int64_t at = 0;  ///< flat index in C order
    double actual = 0, reference = 0, error = 0;
    double ratio = 0;  ///< error / allowed
  };
  std::vector<Element> worst;  ///< at most 8, worst first

  /// The first matrix row of a row of cells; the end for `grid_rows`. Columns likewise.
  std::int64_t row_of(int cell) const { return begin_of(cell, grid_rows, rows); }
  std::int64_t column_of(int cell) const { return begin_of(cell, grid_columns, columns); }

 private:
  static std::int64_t begin_of(int cell, int cells, std::int64_t extent) {
    return (cell * extent + cells - 1) / cells;
  }
};

}  // namespace assay
