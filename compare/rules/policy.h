#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/golden/dtype.h"

namespace assay {

/// How a tolerance policy judges an element.
enum class Rule : std::uint8_t {
  atol_rtol,  ///< |actual - golden| <= atol + rtol |golden|, by a row of a table
  bitwise,    ///< every bit equal
  derived,    ///< within the error bound of the operator at this call (golden/bound.h)
  baseline,   ///< at most so many times the error of another correct result in the same dtype
};

/// Rule::baseline: how many times the baseline's error may be reached; 0: not looked at.
struct Limits {
  double max_relative = 0, mean_relative = 0, rmse = 0, max_abs = 0;
  double noise = 0;  ///< added to what max_abs allows: so many times max |((g + 0.3) - 0.3) - g| in the dtype
};

/// One row of a table: holds for `dtype` from accumulation count `count` up to the next row's.
struct Row {
  DType dtype = DType::float32;
  std::int64_t count = 0;
  double atol = 0, rtol = 0;
  std::string source;
};

struct Policy {
  std::string name;
  std::string source;
  Rule rule = Rule::atol_rtol;
  std::vector<Row> rows;          ///< by dtype, then rising count and not falling tolerance
  Limits limits = {};             ///< of Rule::baseline
  std::string table_sha256 = {};  ///< of the TOML text; empty for a policy without a table

  /// The rows of one dtype; empty: the policy has no rule for it.
  std::span<const Row> rows_of(DType) const;
  /// The row that holds at `count`, or nullptr.
  const Row* find(DType, std::int64_t count) const;
};

/// Names of the policies that come with assay.
std::vector<std::string_view> policy_names();
/// A policy by name, or from a TOML file if the text ends in ".toml".
/// Throws Error for an unknown name and for a table that is damaged: what was found, what was expected.
Policy load_policy(std::string_view name_or_file);

/// "telechat3 float32, count >= 2000: |a-g| <= 2e-4 (1+|g|)"
std::string to_string(const Policy&, const Row&);

}  // namespace assay
