#include "assay/align/given/given_dump.h"

#include "assay/golden/error.h"

namespace assay::align {

GivenDump::GivenDump(const std::string& path)
    : path_(path), dump_(open_dump(path)), tensors_(logical_tensors(*dump_)) {
  if (!dump_->unreadable.empty()) throw Error("{}", dump_->unreadable.front());
}

Tensor GivenDump::read(const LogicalTensor& t) const {
  const std::lock_guard lock(mutex_);
  if (without_bits(*dump_, t) != nullptr)
    throw Error("{}: '{}' was recorded without its values; record them", path_, to_string(t.id));
  const Merged merged = merge(*dump_, t);
  if (!merged.replicas.empty()) {
    const ReplicaMismatch& r = merged.replicas.front();
    throw Error("{}: ranks {} and {} have different copies of '{}'; expected equal bits", path_, r.rank_a,
                r.rank_b, to_string(t.id));
  }
  Tensor whole = merged.tensor.whole();
  check_not_shrunk(*dump_, t);
  return whole;
}

}  // namespace assay::align
