#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/engine/golden.h"

/// Inputs made from a seed alone: the same on every machine.
namespace assay {

/// `random`: uniform in the argument's domain. `integer`: values for which the operator is exact in float32
/// (Operator::exact_fill; small integers where it declares none). `special`: random with zeros, infinities,
/// NaN, the largest and the smallest numbers strewn in.
enum class Fill : std::uint8_t { random, integer, special };
/// Throws Error that lists the fills.
Fill parse_fill(std::string_view);

/// What is generated: an Example, parsed.
struct CallShape {
  std::map<std::string, Shape, std::less<>> sizes;  ///< extents by letter, or by member of a list ("grad_0")
  Attributes attributes;
  std::vector<std::string> leave_out;
};
/// Throws Error for what cannot be read.
CallShape parse_call(const Example&);

/// All inputs of one call, gradients of the outputs with them.
/// @param dtype  of everything but indices (int64); values are rounded to it
/// @throws Error  if sizes lack a letter, contradict, or leave no legal index
std::vector<NamedTensor> generate_inputs(const Operator&, const CallShape&, Fill, DType dtype,
                                         std::uint64_t seed);

}  // namespace assay
