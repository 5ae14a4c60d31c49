#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/case_check.h"

namespace assay {

/// An output that no gate should accept.
struct WrongOutput {
  std::string_view fault;  ///< "one row zero"
  std::string output;
  /// It has nothing of the call: zeros, a constant, NaN, an input, another call's output. Else a kernel with
  /// a fault made it.
  bool is_trivial = false;
  Tensor actual, golden;  ///< in the dtype of the case's output
  /// Why it is none here: the fault changes no bit, or no element by more than a unit in the last place.
  std::string excuse = {};
};
/// For all floating-point outputs of the case.
/// @param sound  the golden outputs, level fp64
std::vector<WrongOutput> faulty_outputs(const Case&, std::span<const NamedTensor> sound);
std::vector<WrongOutput> trivial_outputs(const Case&, std::span<const NamedTensor> sound);

/// Shows that the gate can fail for this case: golden outputs with a small fault, stored in the dtype of the
/// case's own outputs, must not pass.
/// @return  a finding per output and fault: passed if the gate rejected it, failed if not, ignored where the
///          fault changes no bit of the output
std::vector<Finding> prove(CaseCheck&);

}  // namespace assay
