#pragma once

#include <map>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay {

/// The tensors of a side by identity. Of several tensors with one identity, the first counts.
class TensorsById {
 public:
  /// @param tensors  must outlive this
  explicit TensorsById(const std::vector<LogicalTensor>& tensors) {
    for (const LogicalTensor& t : tensors) by_id_.emplace(t.id, &t);
  }
  const LogicalTensor* find(const Identity& id) const {
    const auto found = by_id_.find(id);
    return found != by_id_.end() ? found->second : nullptr;
  }
  /// The tensor if the dump has values of it; else nullptr.
  const LogicalTensor* with_values(const Dump& dump, const Identity& id) const {
    const LogicalTensor* found = find(id);
    return found != nullptr && without_bits(dump, *found) == nullptr ? found : nullptr;
  }

 private:
  std::map<Identity, const LogicalTensor*> by_id_;
};

}  // namespace assay
