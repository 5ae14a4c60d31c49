#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "assay/dumps/layout/merge.h"

namespace assay::align {

/// A file or dump that a replay is given: its tensors, put together.
class GivenDump {
 public:
  /// Throws Error if it cannot be opened, or not all of it.
  explicit GivenDump(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// From any thread. Throws Error if it was not recorded whole, or ranks have different copies.
  Tensor read(const LogicalTensor&) const;

 private:
  const std::string path_;
  const std::unique_ptr<Dump> dump_;
  const std::vector<LogicalTensor> tensors_;
  mutable std::mutex mutex_;
};

}  // namespace assay::align
