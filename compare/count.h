#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/dumps/merge.h"

namespace assay {

/// An accumulation count and where it comes from: "rms_norm y of the recorded shapes, default attributes",
/// "the dump".
struct KnownCount {
  std::int64_t count = 0;
  std::string source;
};

/// Accumulation counts of a dump's tensors, from what the dump itself says: the recorder's own count, or the
/// recorded operator and the shapes recorded around it.
class CountOf {
 public:
  /// @param tensors  must outlive this
  explicit CountOf(const std::vector<LogicalTensor>& tensors);
  std::optional<KnownCount> operator()(const LogicalTensor&) const;

 private:
  // One call of a module: all that was recorded of it, forward and backward, and its parameters.
  using Call = std::vector<const LogicalTensor*>;
  std::map<std::string, Call> calls_;
  std::map<std::string, Call> params_;
};

}  // namespace assay
