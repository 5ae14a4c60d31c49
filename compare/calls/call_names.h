#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/recorded_call.h"

namespace assay {

/// One recorded call, translated into the names that its operator has for arguments and results.
class CallNames {
 public:
  using TensorList = std::vector<const LogicalTensor*>;

  /// The operator of a call; nullptr if it is not known. A matmul with a parameter is a linear layer,
  /// y = x w^T, as PyTorch and Megatron store weights.
  /// @param call    all that was recorded of it, forward and backward
  /// @param module  parameters and states of the module
  static const Operator* operator_of(const TensorList& call, const TensorList& module);

  CallNames(const Operator&, const TensorList& call, const TensorList& module);

  /// The call that makes the forward result `arg`; nothing if the operator has none of that name.
  std::optional<RecordedCall> forward(const std::string& arg) const;
  /// The calls whose results add up to the gradient of an input or a parameter: one for each result of the
  /// forward call that has handed a gradient back. Nothing if one of them cannot be told.
  std::optional<std::vector<RecordedCall>> backward(const LogicalTensor& gradient) const;

 private:
  bool is_linear() const { return op_.name == "linear"; }
  void name_positions();
  std::string_view output_name(std::string_view recorded) const;
  std::string gradient_name(const LogicalTensor&) const;
  std::vector<std::string> results_behind(const LogicalTensor& gradient) const;
  const LogicalTensor* input(const Arg&, std::string_view result) const;
  const LogicalTensor* named_input(const Arg&, std::string_view result) const;
  void add_inputs(RecordedCall&, std::string_view result) const;

  const Operator& op_;
  TensorList inputs_, outputs_, gradients_, params_, states_;
  std::vector<RecordedCall::Input> positions_;  ///< what was recorded by a number
};

}  // namespace assay
