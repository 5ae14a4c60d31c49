#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "assay/golden/tensor.h"

/// How the world uses an operator: what its struct may declare beside the formula. A recorded call is
/// recognised and judged by it, and a strategy places tensors by it; what a struct leaves out has an empty
/// default.
namespace assay {

class Attributes;
class Dims;
struct Candidate;
struct InputShape;
struct Recorded;

/// A value of an attribute, written as in case.json, and who uses it. No recorder writes attributes.
struct Seen {
  std::string_view attribute, value, who;
};

/// An order of dimensions in which all tensors of a call may be kept.
struct Layout {
  std::string_view dims;              ///< "[s, b, h, d]"
  std::array<std::int64_t, 4> order;  ///< dimension d of the operator is order[d] of what was recorded
  std::string_view who;
};

/// An attribute that is solved from a recorded result where no value seen makes it.
struct Solved {
  enum class By : std::uint8_t {
    bisection,   ///< of its logarithm, between low and high: results change with it in one direction
    factor,      ///< results are proportional to it
    candidates,  ///< Op::candidates lists them
  };
  std::string_view attribute;
  By by;
  double low = 0, high = 0;
  std::string_view how = {};  ///< the family of candidates, and who uses it
};

/// Values that an attribute has by mistake alone, in calls of these shapes.
struct OtherValues {
  std::string_view attribute, what;
  /// @param right  the attributes of the call that should have been
  std::vector<Candidate> (*of)(const Attributes& right, std::span<const InputShape>);
};

/// A name that recorders have for an argument.
struct RecordedAs {
  std::string_view arg, name;
  /// "": it is recorded with the call. made_around: an index that another call made. Else the submodule whose
  /// parameters and states hold it ("gate").
  std::string_view module = {};
};
/// In the module of the call, or one around it.
inline constexpr std::string_view made_around = "..";

/// An argument that a module makes itself, of its input and its parameters, and records as a result.
struct MadeWithin {
  std::string_view arg, by;  ///< the operator that makes it
};

/// What frameworks may do to the operands of a product first, if they are told to.
enum class Narrowing : std::uint8_t {
  none,
  to_result,      ///< torch.autocast: to the dtype of the result
  to_result_fp8,  ///< the same; or to float8_e4m3fn with a scale for each block, as DeepSeek-V3
};

/// Where a row of a result comes from, beside what the letters of the shapes say.
enum class Rows : std::uint8_t {
  apart,     ///< from the same row of the inputs
  together,  ///< from all rows: a loss, a count
  routed,    ///< index data say which rows, and which matrices, meet
};

/// Of what an operator takes shares of a sum that ranks hold, and makes shares of its result.
enum class Shares : std::uint8_t {
  none,
  of_all,  ///< f(x + x') = f(x) + f(x'), with all inputs but indices and parameters together
  of_one,  ///< linear in one of two factors
};

/// Letters that count the same things though their extents may differ.
struct SameAxis {
  std::string_view letter, same;
};

/// A state of an optimizer: the input that it was before a step, the output that it is after the first.
struct StepState {
  std::string_view before, after;
};

/// What a number of an optimizer's step does: by this a wrong one is named.
enum class StepNumber : std::uint8_t {
  rate,        ///< the length of the step
  kept,        ///< what a state keeps of itself
  gradient,    ///< multiplies the gradient
  decay,       ///< takes from the parameter
  epsilon,     ///< keeps a divisor from 0
  correction,  ///< of states that begin at 0
  count,       ///< steps taken before, for the correction
  place,       ///< where the epsilon stands
  form         ///< another rule
};

/// An attribute of a step, and the output of its first step that shows it.
struct StepSetting {
  std::string_view attribute;
  StepNumber is;
  std::string_view shows_in;
  std::size_t at = 0;  ///< of a list of numbers, which
};

/// How an optimizer steps a parameter. Recorders name states as its inputs, "weight.exp_avg" (dumps).
struct StepUsage {
  std::string_view parameter, gradient, updated;  ///< two inputs and an output
  std::span<const StepState> states = {};
  std::span<const StepSetting> settings = {};
  bool stateless = false;  ///< with the defaults it has no states
};

/// Op::dims_in_result: a dimension that the result does not have, or not as a whole.
inline constexpr std::int64_t not_in_result = -1;

/// Multiplying the input `by` is multiplying the attribute. So many neighbours in the forward result, the
/// extent of a letter, share what a step before them stores; others do not.
struct Steered {
  std::string_view attribute, by, sharing;
};

struct Usage {
  std::span<const Seen> seen;  ///< admissible, in the order in which they are tried; the default always is
  std::span<const Seen> mistaken;  ///< values that nobody wants, and by what mistake they come
  std::span<const Layout> layouts;
  std::span<const Solved> solved;
  /// Values for Solved::candidates.
  /// @param seen  attributes that are tried together with them
  std::vector<Candidate> (*candidates)(const Attributes& seen, const Recorded&);
  const OtherValues* other_values;  ///< null: none
  /// An element of a forward result may have this value in the place of its own, as a program draws. Without
  /// name: none.
  Seen drawn;
  /// Sets the attributes that shapes and index data of a recorded call tell.
  void (*infer)(Recorded&);
  /// The parameter that scales the result. Some frameworks store it minus 1.
  std::string_view gain;
  Narrowing narrowing;

  std::span<const RecordedAs> recorded_as;
  /// Modules fuse several calls with one input: their parameter "gate_weight" makes their result "gate".
  bool fused_by_name;
  std::span<const MadeWithin> made_within;
  /// The operator that a call is instead if its module has a parameter.
  std::string_view with_parameter;

  /// A module of it may have modules within, which are recorded, too.
  bool has_parts;
  /// Programs make it in no module of its own, of these inputs: results of several modules. Empty: they do
  /// not.
  std::span<const std::string_view> functional_inputs;
  /// Or of these.
  std::span<const std::string_view> functional_instead;
  /// Its first result has no negative values: a cheap look before it is tried.
  bool never_negative;
  /// Whether these can make a result of this shape, where the letters of their shapes do not tell. Null: they
  /// do.
  bool (*may_make)(std::span<const InputShape>, const Shape& result);
  /// Whether an input goes with those before it, where the letters of its shape do not tell. Null: it does.
  bool (*goes_with)(std::span<const InputShape> before, const InputShape& next);

  /// A letter along which the beginning of the result depends on that of the inputs alone, as in decoders.
  std::string_view causal_along;

  /// The input that the terms of a forward sum are linear in.
  std::string_view linear_in;
  Rows rows;
  /// All elements of a row share its sums.
  bool sums_of_rows;
  /// Frameworks keep the statistics of its rows for the gradient, in the dtype of what was given.
  bool keeps_statistics;
  /// Its results are of a few numbers (codes of FP4 have 8 magnitudes): an element that is equal proves 3
  /// bits, not those of its dtype, so that results alone do not tell which operator made them.
  bool is_coarse;
  /// Elements of a result of this shape that share a rounding have equal numbers; empty: none do.
  std::vector<std::int64_t> (*shared_roundings)(const Shape&, const Attributes&);

  /// Elements of a result share what its steps store between them, in ways that its shape does not tell.
  bool shares_steps;
  /// Numbers the elements of an output, of the shape that it was recorded with: those of different numbers
  /// share no such step. Empty: not known.
  std::vector<std::int64_t> (*steps_apart)(std::string_view output, const Shape&, const Dims&,
                                           const Attributes&);
  /// What a common error of an attribute does to the forward result.
  Steered steered;

  /// A loss that programs add to that of their model, of a value that goes on as it is.
  bool regularizes;
  /// A loss that programs end in: of their last values and the tokens that they should have foreseen.
  bool concludes;
  std::span<const SameAxis> same_axis;
  /// The dimension of the result that each dimension of an input is, or not_in_result. Null: that of the same
  /// letter.
  Shape (*dims_in_result)(const Shape& input, const Shape& result, const Attributes&);
  Shares takes_shares;
  /// Inputs that are cut along a dimension which a result does not have make shares of it.
  bool makes_shares;

  const StepUsage* step;  ///< of an optimizer; else null
};

template <class Op>
constexpr Usage usage_of() {
  Usage u{};
  if constexpr (requires { Op::seen; }) u.seen = Op::seen;
  if constexpr (requires { Op::mistaken; }) u.mistaken = Op::mistaken;
  if constexpr (requires { Op::layouts; }) u.layouts = Op::layouts;
  if constexpr (requires { Op::solved; }) u.solved = Op::solved;
  if constexpr (requires { &Op::candidates; }) u.candidates = &Op::candidates;
  if constexpr (requires { Op::other_values; }) u.other_values = &Op::other_values;
  if constexpr (requires { &Op::infer; }) u.infer = &Op::infer;
  if constexpr (requires { Op::gain; }) u.gain = Op::gain;
  if constexpr (requires { Op::narrowing; }) u.narrowing = Op::narrowing;
  if constexpr (requires { Op::recorded_as; }) u.recorded_as = Op::recorded_as;
  if constexpr (requires { Op::fused_by_name; }) u.fused_by_name = Op::fused_by_name;
  if constexpr (requires { Op::made_within; }) u.made_within = Op::made_within;
  if constexpr (requires { Op::with_parameter; }) u.with_parameter = Op::with_parameter;
  if constexpr (requires { Op::has_parts; }) u.has_parts = Op::has_parts;
  if constexpr (requires { Op::functional_inputs; }) u.functional_inputs = Op::functional_inputs;
  if constexpr (requires { Op::functional_instead; }) u.functional_instead = Op::functional_instead;
  if constexpr (requires { Op::causal_along; }) u.causal_along = Op::causal_along;
  if constexpr (requires { &Op::may_make; }) u.may_make = &Op::may_make;
  if constexpr (requires { &Op::goes_with; }) u.goes_with = &Op::goes_with;
  if constexpr (requires { Op::linear_in; }) u.linear_in = Op::linear_in;
  if constexpr (requires { Op::rows; }) u.rows = Op::rows;
  if constexpr (requires { Op::sums_of_rows; }) u.sums_of_rows = Op::sums_of_rows;
  if constexpr (requires { Op::keeps_statistics; }) u.keeps_statistics = Op::keeps_statistics;
  if constexpr (requires { Op::is_coarse; }) u.is_coarse = Op::is_coarse;
  if constexpr (requires { &Op::shared_roundings; }) u.shared_roundings = &Op::shared_roundings;
  if constexpr (requires { Op::drawn; }) u.drawn = Op::drawn;
  if constexpr (requires { Op::shares_steps; }) u.shares_steps = Op::shares_steps;
  if constexpr (requires { &Op::steps_apart; }) u.steps_apart = &Op::steps_apart;
  if constexpr (requires { Op::never_negative; }) u.never_negative = Op::never_negative;
  if constexpr (requires { Op::steered; }) u.steered = Op::steered;
  if constexpr (requires { Op::regularizes; }) u.regularizes = Op::regularizes;
  if constexpr (requires { Op::concludes; }) u.concludes = Op::concludes;
  if constexpr (requires { Op::same_axis; }) u.same_axis = Op::same_axis;
  if constexpr (requires { &Op::dims_in_result; }) u.dims_in_result = &Op::dims_in_result;
  if constexpr (requires { Op::takes_shares; }) u.takes_shares = Op::takes_shares;
  if constexpr (requires { Op::makes_shares; }) u.makes_shares = Op::makes_shares;
  if constexpr (requires { Op::step; }) u.step = &Op::step;
  return u;
}

}  // namespace assay
