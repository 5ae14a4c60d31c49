#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/golden/dtype.h"
#include "assay/golden/summation.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// What a recording does not say of a call: its attributes, and in which order attention's tensors have their
/// dimensions.
struct CallVariant {
  /// What a norm scales by: some keep the weight around 0 (layernorm_zero_centered_gamma).
  enum class Weight : std::uint8_t { as_recorded, plus_one, left_out };

  Attributes attributes;
  /// Of the dimensions of every tensor of the call, to the operator's; empty: as recorded.
  Shape permutation;
  std::string text;  ///< "eps = 1e-06, is_causal = true": what is not the operator's default
  Weight weight = Weight::as_recorded;
  bool fp8 = false;  ///< a product of float8_e4m3fn operands with a scale for each block (fp8_operands.h)
};

/// Every combination of what recorders leave out that training runs have, defaults first: epsilons of norms,
/// RoPE's base, style and dimension, causal masks, layouts, router scores, fp8 operands.
std::vector<CallVariant> variants_of(const Operator&);

/// The variants that a fault may have made of the right one: the others, and RoPE at other positions.
std::vector<CallVariant> mistakes_for(const Operator&, const CallVariant& right);

/// Where fp8 blocks along the tokens end: nowhere, as in sequence parallelism, which gathers them first;
/// where a rank's tokens do, as in context parallelism; or not known (JudgedCall::compare_in_any_blocks).
enum class TokenBlocks : std::uint8_t { gathered, cut, unknown };

/// How a device computes, where not as declared.
struct Arithmetic {
  std::optional<DType> inputs = {};  ///< they are rounded to it
  Rounding rounding = Rounding::nearest_even;
  Summation sums = {};
  TokenBlocks tokens = TokenBlocks::gathered;
};
/// What faults make of it: narrower inputs, from the widest on, then narrower accumulators.
const std::vector<Arithmetic>& narrow_arithmetics();
/// "of inputs truncated to bfloat16", "with sums kept in bfloat16, added up pairwise".
std::string describe(const Arithmetic&);

}  // namespace assay
