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
  bitwise,    ///< all bits are equal
  derived,    ///< within the error bound of this call of the operator (golden/bound.h)
  baseline,   ///< at most a multiple of the error that another correct result of the same dtype makes
};

/// Limits of Rule::baseline, as multiples of the baseline's error; 0: not checked.
struct Limits {
  double max_relative = 0, mean_relative = 0, rmse = 0, max_abs = 0;
  double noise =
      0;  ///< added to the limit of max_abs, in multiples of max |((g + 0.3) - 0.3) - g| in the dtype
};

/// One row of a table. It applies to `dtype` from accumulation count `count` up to the count of the next row.
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
  std::vector<Row> rows;          ///< sorted by dtype and count; the tolerance never falls with the count
  Limits limits = {};             ///< of Rule::baseline
  std::string table_sha256 = {};  ///< of the TOML text; empty for a policy without a table

  /// Returns the rows of one dtype; empty if the policy has no rule for it.
  std::span<const Row> rows_of(DType) const;
  /// Returns the row that applies at `count`, or nullptr.
  const Row* find(DType, std::int64_t count) const;
};

/// Returns the names of the built-in policies.
std::vector<std::string_view> policy_names();
/// Loads a policy by name, or from a TOML file if the text ends in ".toml". Throws Error for an unknown name
/// or a damaged table; the message says what was found and expected.
Policy load_policy(std::string_view name_or_file);

/// "telechat3 float32, count >= 2000: |a-g| <= 2e-4 (1+|g|)"
std::string to_string(const Policy&, const Row&);

}  // namespace assay
