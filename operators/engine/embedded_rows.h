#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

/// What lookups of rows share: which tokens each row of the table was taken for.
namespace assay {

inline constexpr Attribute padding_attribute = {"padding_idx", "null",
                                                "the row whose gradient stays 0; -1 is the last"};

/// The row without gradient, or `rows` if there is none. Throws Error for what is no row.
inline std::int64_t padding_row(std::string_view op, std::int64_t rows, const Attributes& a) {
  if (!a.has("padding_idx")) return rows;
  const std::int64_t row = a.integer("padding_idx");
  if (row < -rows || row >= rows) throw Error("{}: padding_idx {} is no row of {}", op, row, rows);
  return row < 0 ? row + rows : row;
}

/// Of each row the tokens that hand it a gradient.
inline std::vector<std::vector<std::int64_t>> tokens_of_rows(const std::vector<std::int64_t>& index,
                                                             std::int64_t rows, std::int64_t padding) {
  std::vector<std::vector<std::int64_t>> tokens(static_cast<std::size_t>(rows));
  for (std::size_t n = 0; n < index.size(); ++n) {
    if (index[n] != padding)
      tokens[static_cast<std::size_t>(index[n])].push_back(static_cast<std::int64_t>(n));
  }
  return tokens;
}

}  // namespace assay
