#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/result/cause.h"
#include "assay/golden/dtype.h"
#include "assay/golden/summation.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// The unrecorded part of a call: its attributes, and the order of dimensions in its tensors.
struct CallVariant {
  /// The operator's gain. Some frameworks store it minus 1 (layernorm_zero_centered_gamma), and some of those
  /// round the sum to its dtype (Hugging Face's Nemotron).
  enum class Weight : std::uint8_t { as_recorded, plus_one, rounded_plus_one, left_out };

  Attributes attributes;
  /// Permutes the dimensions of every tensor of the call to the order of the operator; empty: as recorded.
  Shape permutation;
  std::string text;  ///< the non-default values: "eps = 1e-06, is_causal = true"
  Weight weight = Weight::as_recorded;
  bool fp8 = false;  ///< a product of float8_e4m3fn operands with a scale for each block (fp8_operands.h)
};

/// The value of an attribute: as the variant states it, else the operator's default.
AttributeValue value_of(const CallVariant&, const Attribute&);
/// Returns the variant with this value in the place of its own.
CallVariant with(const Operator&, CallVariant, std::string_view attribute, AttributeValue value);
/// Returns the variant with all of these in the place of its own.
CallVariant with(const Operator&, CallVariant, const Attributes&);
/// Whether both make the same call, however they are told.
bool is_same(const CallVariant&, const CallVariant&);

/// What one variant has in another way than the other: "eps = 1e-06, weight + 1".
std::string differences(const Operator&, const CallVariant& of, const CallVariant& from);

/// What a call has in the place of the right attributes; of one alone its name and both numbers, too.
CauseParameters other_attributes(const Operator&, const CallVariant& actual, const CallVariant& right);

/// Returns the variants that occur in training, defaults first: the combinations of what the operator
/// declares as seen, of its layouts, of a gain that is stored minus 1 and of fp8 operands.
std::vector<CallVariant> variants_of(const Operator&);

/// Returns the variants that a fault may have used instead of the right one: all others, the right one
/// without its gain, and what the operator declares as mistaken.
std::vector<CallVariant> mistakes_for(const Operator&, const CallVariant& right);

/// The ends of fp8 blocks along the tokens. Sequence parallelism gathers the tokens first, so that no block
/// ends early; context parallelism ends blocks at the last token of each rank; or the ends are unknown
/// (Call::compare_in_any_blocks).
enum class TokenBlocks : std::uint8_t { gathered, cut, unknown };

/// The arithmetic of a device, as far as it differs from the declared one.
struct Arithmetic {
  std::optional<DType> inputs = {};  ///< the dtype to which inputs are rounded
  Rounding rounding = Rounding::nearest_even;
  Summation sums = {};
  TokenBlocks tokens = TokenBlocks::gathered;
  bool operator==(const Arithmetic&) const = default;
};
/// Returns the arithmetics of precision faults: narrower inputs, widest first, then narrower accumulators.
const std::vector<Arithmetic>& narrow_arithmetics();
/// "of inputs truncated to bfloat16", "with sums kept in bfloat16, added up pairwise".
std::string describe(const Arithmetic&);

}  // namespace assay
