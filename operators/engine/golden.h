#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/engine/operator.h"

/// Golden values: what an operator's outputs should be.
namespace assay {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What the elements of inputs may be off by that were computed themselves, by their names.
using InputErrors = std::map<std::string, std::vector<double>, std::less<>>;

/// `report`: TeleChat3's rule, fp16, bf16 and hf32 inputs cast to float32, float32 arithmetic. `fp64`:
/// float64 arithmetic. `certified`: correctly rounded to float32, with proof (certified.h). `bound`: not
/// values but the errors that a correct device may make (compute_bound).
enum class Level : std::uint8_t { report, fp64, certified, bound };
std::string_view name(Level);
/// Throws Error that lists the levels.
Level parse_level(std::string_view);

/// The operator's defaults, overwritten by `given`. Throws Error for an attribute that the operator does not
/// have, for a value of the wrong kind, and for one without default that is missing.
Attributes complete_attributes(const Operator&, const Attributes& given);

/// The value of an attribute as case.json would hold it: "1e-5", "[0.9, 0.999]". Throws Error if it is none.
AttributeValue parse_attribute(std::string_view text);

/// The most elements that one output may have: a few bytes of input can ask for any number (a matmul over
/// K = 0).
inline constexpr std::int64_t most_output_elements = std::int64_t{1} << 30;

/// The stored bits of every element, zero-extended, as int64: what Arg::raw tensors hold.
Tensor bits_of(const Tensor&);

/// All outputs of the operator: the forward ones, and the gradients of the inputs if every gradient of an
/// output is among the inputs; members of a list by their numbers. dtype float32 at level report, float64 at
/// fp64; float32 at certified; Role::output_index int64. At bound the errors of float32 arithmetic, float64.
/// A NaN that was computed, not copied, is the positive quiet NaN.
/// @throws Error  for a missing or unknown input, shapes that contradict, an index out of range, an output of
///                more than most_output_elements
/// @param only    nothing but this output is asked for: others may be 0
std::vector<NamedTensor> compute_golden(const Operator&, std::span<const NamedTensor> inputs,
                                        const Attributes&, Level, std::string_view only = {});

/// For each output and element the error (float64) that a correct kernel with this arithmetic may make, in
/// any order of its sums, the rounding of inputs that its format does not hold included, that of the final
/// store not. 0 for indices.
/// @param only    as in compute_golden
/// @param errors  go into those of the outputs
std::vector<NamedTensor> compute_bound(const Operator&, std::span<const NamedTensor> inputs,
                                       const Attributes&, const ErrorModel& device,
                                       std::string_view only = {}, const InputErrors& errors = {});

/// Both from one evaluation.
struct GoldenAndBound {
  /// float64; sums may be added in another order than those of Level::fp64. Indices are 0.
  std::vector<NamedTensor> values;
  std::vector<NamedTensor> errors;  ///< compute_bound's
};
GoldenAndBound compute_golden_and_bound(const Operator&, std::span<const NamedTensor> inputs,
                                        const Attributes&, const ErrorModel& device,
                                        std::string_view only = {}, const InputErrors& errors = {});

/// The tensor of that name, or nullptr.
const Tensor* find_tensor(std::span<const NamedTensor>, std::string_view name);

/// One of the outputs that were computed. Throws Error if it is not among them.
const Tensor& output_named(std::span<const NamedTensor> outputs, std::string_view name);

/// The declaration of one output; "param_3" is a member of "param_#". Throws Error if there is no such
/// output.
const Arg& output_arg(const Operator&, std::string_view output);

/// The declaration of one input. Throws Error that lists the operator's inputs if there is none of that name.
const Arg& input_arg(const Operator&, std::string_view input);

/// The shapes of a call's inputs, and the data of its indices, which must outlive them.
std::vector<InputShape> shapes_of(std::span<const NamedTensor> inputs);

/// Accumulation count of one output, from the shapes of the inputs (and index data, where given): the value
/// of its Arg::terms; 0 where nothing is accumulated: a copy, indices, or an empty sum.
/// @throws Error  if there is no such output, and as bind_dims does
std::int64_t accumulation_count(const Operator&, std::string_view output, InputShapes inputs,
                                const Attributes&);
/// The same from known extents.
std::int64_t accumulation_count(const Operator&, std::string_view output, const Dims&);

/// The extents by letter that these inputs have.
/// @throws Error  for a missing or unknown input and for shapes that contradict
Dims bind_dims(const Operator&, InputShapes inputs, const Attributes&);

/// The shape of an argument in such a call; not for lists, whose members have shapes of their own.
Shape shape_of(const Operator&, const Arg&, const Dims&, const Attributes&);

/// The same computation with the scalars kept, for those who need them: T is float, double, Bound or Truth,
/// Unrounded where the operator has run_unrounded. Bound is of the arithmetic that the calling thread's
/// ErrorScope says.
template <class T>
Tensors<T> evaluate(const Operator&, std::span<const NamedTensor> inputs, const Attributes&,
                    std::string_view only = {}, const InputErrors& errors = {});

/// What evaluate computes on: the inputs as scalars of the level, and outputs yet to be filled, but for
/// lists.
template <class T>
struct Prepared {
  Tensors<T> tensors;
  Dims dims;
  Attributes attributes;
};
template <class T>
Prepared<T> prepare(const Operator&, std::span<const NamedTensor> inputs, const Attributes&);

}  // namespace assay
