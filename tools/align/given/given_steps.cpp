#include "assay/align/given/given_steps.h"

#include "assay/golden/error.h"

namespace assay::align {

GivenSteps::GivenSteps(const GivenDump& given, const std::function<bool(const LogicalTensor&)>& is_wanted)
    : path_(given.path()) {
  for (const LogicalTensor& t : given.tensors()) {
    if (is_wanted(t)) tensors_[{t.id.step, t.id.micro_batch}] = &t;
  }
  if (!tensors_.empty()) first_step_ = tensors_.begin()->first.step;
}

const LogicalTensor& GivenSteps::at(const MicroBatch& which, const std::string& what,
                                    std::string_view otherwise) const {
  const std::int64_t step = first_step_ + which.step;
  const auto known = tensors_.find({step, which.number});
  if (known == tensors_.end())
    throw Error("{}: has no {} in step {}, micro-batch {}; {}", path_, what, step, which.number, otherwise);
  return *known->second;
}

}  // namespace assay::align
