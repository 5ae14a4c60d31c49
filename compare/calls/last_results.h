#pragma once

#include <string>
#include <vector>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/recorded_call.h"

namespace assay {

/// All results of the last call between modules: its gradients are asked for one after the other, and
/// evaluating all of them costs hardly more than one. Of sums (Operator::is_only_sums), which share no step,
/// the last one alone.
class LastResults {
 public:
  /// Gives a call that makes several results and takes long its golden result and what is allowed of it.
  /// @param made_by  the recorded operands of the call, which is complete
  /// @param quick    ErrorModel::quick
  void give(Call&, const std::vector<RecordedCall>& made_by, const CallVariant&, bool quick);

 private:
  using Operands = std::vector<const LogicalTensor*>;
  const Operator* op_ = nullptr;
  Operands operands_;
  CallVariant variant_;
  bool is_quick_ = false;
  std::string only_;
  GoldenAndBound results_;
};

}  // namespace assay
