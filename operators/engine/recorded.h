#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/operators/engine/golden.h"

/// What Op::infer and Op::candidates see and give.
namespace assay {

/// A call as a dump recorded it: tensors under the operator's names, but no attributes.
struct Recorded {
  std::vector<NamedTensor>& inputs;  ///< infer may give them the shape that the operator wants
  std::string_view output;  ///< the name of `result`; of a sum of several calls, what each adds to it
  const Tensor& result;
  Attributes attributes = {};  ///< set by infer

  const Tensor* input(std::string_view name) const { return find_tensor(inputs, name); }
  /// The input if it holds integers, else nullptr.
  const Tensor* index(std::string_view name) const {
    const Tensor* found = input(name);
    return found == nullptr || is_float(found->dtype()) ? nullptr : found;
  }
};

/// Attributes that a call may have had.
struct Candidate {
  Attributes attributes;
  std::string text;  ///< "scale = 0.0721688"
};

/// The numbers among the values of an attribute that were seen, in the order of their rows.
std::vector<double> seen_numbers(const Operator&, std::string_view attribute);

}  // namespace assay
