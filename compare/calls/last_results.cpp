#include "assay/compare/calls/last_results.h"

#include <string>
#include <utility>

namespace assay {

void LastResults::give(Call& call, const std::vector<RecordedCall>& made_by, const CallVariant& variant,
                       bool quick) {
  if (call.work() <= work_of_a_look || call.op().functional_inputs.empty() || made_by.empty()) return;
  Operands operands;
  for (const RecordedCall& c : made_by) {
    for (const RecordedCall::Input& given : c.inputs) operands.push_back(given.tensor);
  }
  const std::string& output = made_by.front().output;
  const std::string only = call.op().is_only_sums ? output : "";
  if (op_ != &call.op() || operands_ != operands || !is_same(variant_, variant) || is_quick_ != quick ||
      only_ != only) {
    results_ = {};  // before others take as much memory
    results_ = call.all_results(variant, quick, only);
    op_ = &call.op();
    operands_ = std::move(operands);
    variant_ = variant;
    is_quick_ = quick;
    only_ = only;
  }
  if (const Tensor* errors = find_tensor(results_.errors, output))
    call.take_device_errors(variant, errors->values());
  if (const Tensor* golden = find_tensor(results_.values, output)) call.take_golden(variant, *golden);
}

}  // namespace assay
