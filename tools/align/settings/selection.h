#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/dumps/record/dump.h"

namespace assay::align {

/// What of a replay is written to its dump.
class Selection {
 public:
  Selection() = default;  ///< everything
  /// @param patterns  of "module.slot.arg" or its shorter forms, as in a rules file; none: all
  /// @param steps     "0,2-5"; empty: all
  /// @throws Error    if that does not say steps
  Selection(std::vector<std::string> patterns, std::string_view steps);

  const std::string& steps() const { return text_; }  ///< as they were given
  bool has_step(std::int64_t) const;
  bool has(const Identity&) const;
  /// The patterns that none of these meets.
  std::vector<std::string> unmet(std::span<const Record> written) const;

 private:
  std::vector<std::string> patterns_;
  std::string text_;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps_;  ///< first, last
};

}  // namespace assay::align
