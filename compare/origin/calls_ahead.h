#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <optional>

#include "assay/compare/calls/call.h"
#include "assay/golden/parallel.h"

namespace assay {

/// A call and how it compares with some attributes, which depends on nothing else.
struct FirstLook {
  Call call;
  CallVariant variant;
  std::optional<Call::Compared> compared;
};

/// Looks at calls on other threads before they are judged, one after the other. What it gives is what the
/// asker would compute: the number of threads changes nothing. Who waits for a look helps with it.
class CallsAhead {
 public:
  /// @param threads  with the one that judges; 1: nothing is looked at ahead
  explicit CallsAhead(int threads);

  /// Whether one more may be begun.
  bool has_room() const { return begun_.size() < most_; }
  /// False if there is no thread for it.
  bool begin(const LogicalTensor* made, std::function<std::optional<FirstLook>()> find);
  /// What was begun for this result; nothing if it was not, or found trouble.
  std::optional<FirstLook> take(const LogicalTensor* made);

 private:
  struct Look {
    std::optional<FirstLook> found;
    bool is_done = false;
    std::future<void> thread = {};
  };
  std::size_t most_;
  Crew crew_;
  std::map<const LogicalTensor*, Look> begun_;
};

}  // namespace assay
