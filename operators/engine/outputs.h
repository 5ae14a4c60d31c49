#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"

/// How what an operator made becomes tensors.
namespace assay {

/// The outputs in the order of the declaration, the members of a list by their numbers.
/// @param tensors    Tensors of any scalar
/// @param to_tensor  makes the tensor of one slot
template <class Slots, class F>
std::vector<NamedTensor> outputs_of(const Operator& op, Slots&& tensors, F to_tensor) {
  std::vector<NamedTensor> outputs;
  for (const Arg& arg : op.args) {
    if (is_given(arg)) continue;
    std::map<std::int64_t, NamedTensor> members;
    for (auto& [name, slot] : tensors.slots()) {
      if (slot.arg == &arg) members[*member_number(arg, name)] = {name, to_tensor(slot)};
    }
    for (auto& [number, member] : members) outputs.push_back(std::move(member));
  }
  return outputs;
}

/// The sign of a NaN that was computed is the machine's (x86 has -NaN for 0 / 0, ARM +NaN): it becomes the
/// positive quiet NaN.
template <std::floating_point T>
T with_one_nan(T v) {
  return std::isnan(v) ? std::numeric_limits<T>::quiet_NaN() : v;
}

/// A value of that output.
inline double output_value(const Arg& output, double v) {
  return output.exact == Exact::bits ? v : with_one_nan(v);
}

}  // namespace assay
