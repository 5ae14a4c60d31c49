#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/calls/recorded_call.h"

namespace assay {

/// An accumulation count and where it comes from: "rms_norm y of the recorded shapes, default attributes",
/// "the dump".
struct KnownCount {
  std::int64_t count = 0;
  std::string source;
};

/// Accumulation counts of the tensors of a dump, by the information in the dump itself: the recorded count,
/// or the recorded operator and the shapes around it.
class CountOf {
 public:
  /// @param tensors  must outlive this
  explicit CountOf(const std::vector<LogicalTensor>& tensors) : calls_(tensors) {}
  std::optional<KnownCount> operator()(const LogicalTensor&) const;

 private:
  RecordedCalls calls_;
};

}  // namespace assay
