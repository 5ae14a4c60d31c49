#pragma once

#include <map>
#include <string>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/causes/operand_mistakes.h"

namespace assay {

/// What one side recorded at other places, and a call may have taken for its operands: a buffer that was not
/// renewed, the activations of another micro-batch, the weights of another layer.
class ElsewhereRecorded {
 public:
  /// @param tensors  must outlive this
  ElsewhereRecorded(const Dump&, const std::vector<LogicalTensor>& tensors);

  /// The nearest first: each operand of another step, micro-batch or call; all operands of forward of another
  /// micro-batch; each of another module of that kind.
  std::vector<OtherOperands> of(const RecordedCalls&, const LogicalTensor& made) const;

 private:
  std::vector<const LogicalTensor*> alike(const LogicalTensor&) const;

  const Dump& dump_;
  std::map<std::string, std::vector<const LogicalTensor*>> alike_;  ///< by their names without numbers
};

}  // namespace assay
