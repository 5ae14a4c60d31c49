#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/calls/recorded_call.h"

namespace assay {

/// An operator by the name that a recorder has for it: PyTorch's modules by their class alone, and methods of
/// tensors as the function they stand for ("torch.Tensor.__mul__"). nullptr: not known.
const Operator* recorded_operator(std::string_view name);

/// The operator by which the module of a call makes one of its own inputs, if that is what the tensor belongs
/// to: the input, its gradient, or what it was made of. Else nullptr.
/// @param call   all recorded tensors of the call
/// @param order  of its results
const Operator* operator_within(const Operator&, const std::vector<const LogicalTensor*>& call,
                                const LogicalTensor&, const ResultOrder& order = {});

/// Translates the recorded names of one call into the argument and result names of its operator.
class CallNames {
 public:
  using TensorList = std::vector<const LogicalTensor*>;

  /// Returns the operator of a call; nullptr if it is not known.
  /// @param call    all recorded tensors of the call, forward and backward
  /// @param module  parameters and states of the module
  static const Operator* operator_of(const TensorList& call, const TensorList& module);

  CallNames(const Operator&, const TensorList& call, const TensorList& module, ResultOrder order = {});

  /// Returns the call that makes the forward result `arg`; nothing if the operator has no such result.
  std::optional<RecordedCall> forward(const std::string& arg) const;
  /// Returns the calls that sum to the gradient of an input or a parameter: one for each forward result with
  /// a recorded gradient. Nothing if one of them is not known.
  std::optional<std::vector<RecordedCall>> backward(const LogicalTensor& gradient) const;

 private:
  void name_positions();
  void pair_twins();
  TensorList unnamed_inputs() const;
  void name_parameters();
  std::string_view output_name(std::string_view recorded) const;
  /// The parameter of an operator whose parameters are named after results.
  const Arg& weight() const { return first_arg(op_, Role::param); }
  std::string gradient_name(const LogicalTensor&) const;
  std::string gradient_of_result(std::string_view recorded) const;
  static std::vector<RecordedCall> together(std::vector<RecordedCall>);
  std::vector<std::string> results_behind(const LogicalTensor& gradient) const;
  const LogicalTensor* input(const Arg&, std::string_view result) const;
  const LogicalTensor* named_input(const Arg&, std::string_view result) const;
  void add_inputs(RecordedCall&, std::string_view result) const;
  void add_members(RecordedCall&, const Arg& list) const;
  std::string_view declared(const LogicalTensor& result) const {
    return declared_result(op_, result.id.arg, order_);
  }

  const Operator& op_;
  ResultOrder order_;
  TensorList inputs_, outputs_, gradients_, params_, states_;
  std::vector<RecordedCall::Input> positions_;   ///< inputs that were recorded by position
  std::vector<RecordedCall::Input> parameters_;  ///< of names that are not the operator's
  /// Results of several calls that were recorded as one, each with its input: a rope's q and k.
  std::vector<std::pair<const LogicalTensor*, const LogicalTensor*>> twins_;
};

}  // namespace assay
