#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "assay/dumps/record/dump.h"

namespace assay {

/// Failures in execution order, found by their place: the possible causes of a later failure.
class OpenFailures {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// @param i   larger than those before
  /// @param id  must outlive this
  void add(std::size_t i, const Identity& id, bool is_result);
  /// The last result that failed inside this module, in the same pass.
  std::size_t inside(const Identity&) const;
  /// The last failure that ran before, of the same pass where there is one: backward after forward of the
  /// same micro-batch, a step after the one before it. Forward does not follow from backward of its step.
  std::size_t before(const Identity&) const;

 private:
  using Pass = std::pair<std::int64_t, std::int64_t>;  ///< step and micro-batch
  static Pass pass_of(const Identity&);

  struct Last {
    std::size_t forward = none, any = none;
  };

  std::map<std::tuple<Pass, std::string_view>, std::size_t> by_ancestor_;
  std::map<Pass, Last> by_pass_;
  std::map<std::int64_t, Last> by_step_;
};

}  // namespace assay
