#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "assay/compare/calls/declared_args.h"
#include "assay/dumps/layout/merge.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// The module in all layers and of all experts: without its numbers.
std::string without_numbers(std::string_view module);

/// The call that made a recorded result: the operator and its recorded inputs, under the operator's names.
struct RecordedCall {
  struct Input {
    std::string name;
    const LogicalTensor* tensor = nullptr;
  };
  const Operator* op = nullptr;
  std::string output;
  std::vector<Input> inputs;   ///< the recorded ones; an optional input may or may not have been given
  Attributes attributes = {};  ///< the recorded ones
  /// Whether no required input is known to be missing. A backward call requires the gradient that it starts
  /// from.
  bool is_complete() const;
  /// The first required argument of that role that was not recorded; nullptr if none is missing.
  const Arg* lacking(Role) const;
  /// The name of the first required input that was not recorded: "weight"; empty if none is missing.
  std::string missing() const;
};

/// All calls that a dump recorded.
class RecordedCalls {
 public:
  /// @param tensors        must outlive this
  /// @param gives_choices  the routers were told which experts to take
  explicit RecordedCalls(const std::vector<LogicalTensor>& tensors, bool gives_choices = false);
  /// Takes a tensor, under another identity, for an input that a call was given and that was not recorded
  /// with it.
  void lend(const LogicalTensor&, const Identity& as);
  /// Takes a call that no module made by itself as if one had, with its gradients.
  /// @param inputs    with the operator's names for them
  /// @param others    its other results
  /// @param gradient  of the result; nullptr: it was not recorded
  /// @param handed_back  gradients of inputs that nothing else adds to, by the inputs' names
  void lend_call(const Operator&, const std::string& module, const std::vector<RecordedCall::Input>& inputs,
                 const RecordedCall::Input& result, const std::vector<RecordedCall::Input>& others,
                 const LogicalTensor* gradient, const std::vector<RecordedCall::Input>& handed_back);
  /// Whether such a call made the tensor: its result, or a gradient that it handed back.
  bool is_hidden_result(const LogicalTensor& t) const { return hidden_.contains(t.id); }
  /// What the recorder calls the operator of a call; the module without its numbers where it calls it
  /// nothing.
  static std::string kind_of(const LogicalTensor&);
  /// An operator that was found for a class.
  struct Taken {
    const Operator* op = nullptr;
    ResultOrder order = {};
  };
  /// Takes an operator for all calls of a kind that names no known one. nullptr: for none again.
  void take_operator(const std::string& kind, Taken);
  /// Whether the module was called in that step.
  bool runs(std::int64_t step, const std::string& module) const { return keys_.contains({step, module}); }
  /// The calls of a module in a step, as the identity of an input would have them.
  std::vector<Identity> runs_of(std::int64_t step, const std::string& module) const;
  /// Whether a call made this result for itself, as an input of its operator.
  bool is_own_input(const LogicalTensor&) const;
  /// Takes a parameter for one that a module uses and another module has: a tied embedding.
  /// @param as  the input of the using module; its step and micro-batch do not matter
  void lend_parameter(const LogicalTensor&, const Identity& as);
  /// Notes that a module was given the parameter of another one as an input: its gradient is that of both.
  void share_parameter(const Identity& param, const Identity& input) {
    users_[{param.module, param.arg}].insert({input.module, input.arg, input.call});
  }
  /// The module whose call made a tensor: its own, or that which stands for a call in none.
  const std::string& module_of(const LogicalTensor&) const;
  /// Whether the module of a tensor was called in its step and micro-batch.
  bool has_call(const Identity&) const;
  /// Returns the calls that sum to this tensor: one call, or one per micro-batch for the gradient of a
  /// parameter, or one per weight for the input gradient of a fused projection. Empty if the operator is not
  /// known, or if recorded names do not fit it.
  std::vector<RecordedCall> producers(const LogicalTensor&) const;
  /// A call of the operator with that value as its first input, and with indices that were made around it.
  RecordedCall of_value(const Operator&, const LogicalTensor& value) const;
  /// Integers that calls of its module and of those around it made in the same micro-batch, the nearest
  /// first.
  std::vector<const LogicalTensor*> indices_around(const LogicalTensor&) const;
  /// Parameters that a call beside this result or input, in no module of its own, may take: of its module and
  /// that around it; of a module that is never called; and tables of rows, as those of tied embeddings.
  std::vector<const LogicalTensor*> parameters_near(const LogicalTensor&) const;
  /// The operator of the call that a tensor belongs to; nullptr if it is not known.
  const Operator* operator_of(const LogicalTensor&) const;
  /// Returns all recorded tensors of the same call; for the gradient of a parameter, of all its calls.
  std::vector<const LogicalTensor*> around(const LogicalTensor&) const;

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::string, std::int64_t>;
  using TensorList = std::vector<const LogicalTensor*>;
  std::vector<Key> keys_of(const LogicalTensor&) const;
  Taken operator_of(const TensorList& call, const TensorList& params) const;
  void add_calls(std::vector<RecordedCall>&, const LogicalTensor& made, const Key&, bool& is_known) const;
  void add_inputs_from_elsewhere(RecordedCall&, const LogicalTensor& made) const;
  /// Whether the modules that hold required parameters of the operator (RecordedAs::module) do nothing else.
  bool has_parts_of(const Operator&, const TensorList& call, const TensorList& params) const;
  /// The gradient of such a parameter as that of the module around its own.
  std::optional<LogicalTensor> held_for_around(const LogicalTensor&) const;
  void add_from_submodule(RecordedCall&, const RecordedAs&, const LogicalTensor& made) const;

  const TensorList& parameters_for_all(std::int64_t step) const;

  bool gives_choices_;
  std::map<std::string, Taken> taken_;  ///< by kind
  std::deque<LogicalTensor> lent_;
  std::map<Identity, const LogicalTensor*> hidden_;  ///< results of lent calls, as these have them
  /// Who uses a parameter of another module, with its own name for it.
  static constexpr std::int64_t every_call = -1;
  struct User {
    std::string module, arg;
    std::int64_t call = every_call;
    auto operator<=>(const User&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 errs
  };
  std::map<std::pair<std::string, std::string>, std::set<User>> users_;  ///< by the parameter's names
  std::map<Key, TensorList> calls_;  ///< by step, micro-batch, module and call
  std::map<std::pair<std::int64_t, std::string>, TensorList>
      modules_;  ///< by step: parameters and states before it
  std::map<std::pair<std::int64_t, std::string>, std::vector<Key>> keys_;  ///< by step: the calls of a module
  mutable std::map<std::int64_t, TensorList> for_all_;                     ///< by step, once somebody asks
  /// Integers that were made, by step, micro-batch and module.
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, TensorList> indices_;
};

}  // namespace assay
