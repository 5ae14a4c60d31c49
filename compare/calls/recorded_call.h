#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "assay/dumps/layout/merge.h"
#include "assay/operators/engine/operator.h"

namespace assay {

/// A recorded result as the call of an operator that made it: what it was computed from, by the names that
/// the operator has for them.
struct RecordedCall {
  struct Input {
    std::string name;
    const LogicalTensor* tensor = nullptr;
  };
  const Operator* op = nullptr;
  std::string output;
  std::vector<Input> inputs;  ///< as far as they were recorded: an optional one may have been there or not
  /// Nothing that it cannot do without is known to be missing: a backward call has the gradient it began
  /// with.
  bool is_complete() const;
};

/// The calls that a dump recorded.
class RecordedCalls {
 public:
  /// @param tensors  must outlive this
  /// @param gives_choices  routers were told which experts to take
  explicit RecordedCalls(const std::vector<LogicalTensor>& tensors, bool gives_choices = false);
  /// The calls whose results add up to this tensor: one, or one per micro-batch for a parameter's gradient,
  /// one per weight for the input's gradient of a fused projection. None if its operator is not known, or was
  /// recorded under names that are not the operator's.
  std::vector<RecordedCall> producers(const LogicalTensor&) const;
  /// All tensors that were recorded of the same call; for a parameter's gradient of its calls.
  std::vector<const LogicalTensor*> around(const LogicalTensor&) const;

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::string, std::int64_t>;
  using TensorList = std::vector<const LogicalTensor*>;
  std::vector<Key> keys_of(const LogicalTensor&) const;
  void add_indices(RecordedCall&, const LogicalTensor& made) const;

  bool gives_choices_;
  std::map<Key, TensorList> calls_;  ///< by step, micro-batch, module and call
  std::map<std::pair<std::int64_t, std::string>, TensorList>
      modules_;  ///< by step: parameters and states before it
  std::map<std::pair<std::int64_t, std::string>, std::vector<Key>> keys_;  ///< by step: the calls of a module
  /// Integers that were made, by step, micro-batch and module.
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, TensorList> indices_;
};

}  // namespace assay
