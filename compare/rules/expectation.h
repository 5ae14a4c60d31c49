#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "assay/compare/rules/policy.h"
#include "assay/golden/tensor.h"

namespace assay {

/// By what a pair of tensors is to be judged.
struct Expectation {
  const Policy* policy = nullptr;
  DType row_dtype = DType::float32;   ///< whose rows hold
  std::string row_reason;             ///< why another dtype's than the tensor's own; else empty
  std::optional<std::int64_t> count;  ///< accumulation count, if known
  /// The operator copies: equal inputs promise equal bits. Only where both sides had equal inputs.
  bool promises_bits = false;
  std::string bits_reason;
  /// Rule::derived: per element, including the rounding of the final store; and what it was derived from.
  std::span<const double> bound = {};
  std::string bound_source;
  /// Rule::baseline: another correct result in the dtype of the actual tensor.
  const Tensor* baseline = nullptr;
  int threads = 1;
  bool exact_sums = false;
  bool map_errors = false;  ///< fill Finding::error_map if the pair does not pass: a second pass over it
};

/// The row that decides. Without a count the first: what passes there passes at every count. Null: no row
/// does.
const Row* deciding_row(const Expectation&);
/// "telechat3 float32, ..: |a-g| <= .. (count 512)".
std::string rule_text(const Expectation&, const Row&);
/// "telechat3 has no row for int4", or for the count: where deciding_row is null.
std::string no_row_text(const Expectation&);
/// Why a pair that fails at the strictest row has no rule: it passes in `looser`, and nobody knows the count.
std::string count_needed(const Row& looser);
/// The rule by which a tensor of this dtype must have every bit equal; empty: a tolerance decides.
std::string bits_rule(const Expectation&, DType actual);

}  // namespace assay
