#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor.h"

namespace assay {

struct MeasuredByBound;

/// The rule by which a pair of tensors is judged.
struct Expectation {
  const Policy* policy = nullptr;
  DType row_dtype = DType::float32;  ///< the dtype whose table rows apply
  std::string
      row_reason;  ///< why the rows of another dtype apply; empty if those of the tensor's own dtype do
  std::optional<std::int64_t> count;  ///< the accumulation count, if known
  /// The operator only copies, and both sides had equal inputs: the bits must be equal.
  bool promises_bits = false;
  std::string bits_reason;
  /// Rule::derived: the bound of each element, including the rounding of the final store, and its derivation.
  std::span<const double> bound = {};
  std::string bound_source;
  /// Instead of the bound: what came of it, where it was never whole in memory.
  const MeasuredByBound* measured = nullptr;
  /// Rule::baseline: another correct result in the dtype of the actual tensor.
  const Tensor* baseline = nullptr;
  int threads = 1;
  bool exact_sums = false;
  bool map_errors = false;  ///< fills Finding::error_map if the pair does not pass: a second pass
};

/// Returns the deciding row; nullptr if none decides. Without a count it is the first row, which is the
/// strictest: a pair that passes there passes at every count.
const Row* deciding_row(const Expectation&);
/// "telechat3 float32, ..: |a-g| <= .. (count 512)".
std::string rule_text(const Expectation&, const Row&);
/// Explains why deciding_row is nullptr: "telechat3 has no row for int4".
std::string no_row_text(const Expectation&);
/// Explains why a pair has no rule although it has rows: it fails at the strictest row and passes at
/// `looser`, and the accumulation count is unknown.
std::string count_needed(const Row& looser);
/// Returns the rule that demands equal bits for this dtype; empty if a tolerance decides.
std::string bits_rule(const Expectation&, DType actual);

}  // namespace assay
