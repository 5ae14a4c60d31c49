#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace re2 {
class RE2;
}

namespace assay {

/// A regular expression over the bytes of a name, in the syntax of RE2 (github.com/google/re2/wiki/Syntax):
/// ECMAScript without lookaround and backreferences. No pattern takes more than linear time.
class Pattern {
 public:
  /// Throws Error for an invalid expression; the message shows the text and the mistake.
  explicit Pattern(const std::string& text);

  std::size_t groups() const;

  /// Returns the first match and its groups, as parts of the name; empty if there is no match. A group
  /// without a part in the match is empty.
  std::vector<std::string_view> find(std::string_view name) const;

  /// Replaces every match by `to`. $1 to $9 are the groups, $& is the match, $$ is a dollar sign. Returns
  /// false if there is no match.
  bool replace(std::string& name, std::string_view to) const;

  /// Throws Error if `to` names a group that the pattern lacks.
  void check_replacement(std::string_view to) const;

 private:
  std::shared_ptr<const re2::RE2> program_;
};

}  // namespace assay
