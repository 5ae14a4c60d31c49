#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "assay/align/given/given_dump.h"
#include "assay/align/step/sources.h"

namespace assay::align {

/// A tensor of each micro-batch of a recorded replay. Steps count from the first that has one.
class GivenSteps {
 public:
  GivenSteps(const GivenDump&, const std::function<bool(const LogicalTensor&)>& is_wanted);
  /// Throws Error if it was not recorded.
  /// @param what       it is, for the message
  /// @param otherwise  what to do then
  const LogicalTensor& at(const MicroBatch&, const std::string& what,
                          std::string_view otherwise = "record it, or replay what was recorded") const;

 private:
  const std::string path_;
  std::int64_t first_step_ = 0;
  std::map<MicroBatch, const LogicalTensor*> tensors_;
};

}  // namespace assay::align
