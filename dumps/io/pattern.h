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

/// A regular expression over the bytes of a name, in RE2's syntax (github.com/google/re2/wiki/Syntax): that
/// of ECMAScript without lookaround and backreferences, so that no pattern takes more than linear time.
class Pattern {
 public:
  /// Throws Error that shows the text and says what is wrong with it.
  explicit Pattern(const std::string& text);

  std::size_t groups() const;

  /// The first match and its groups, as parts of the name; empty where there is no match. A group that took
  /// no part in it is empty.
  std::vector<std::string_view> find(std::string_view name) const;

  /// Replaces every match by `to`, in which $1 to $9 are its groups, $& is the match and $$ a dollar sign.
  /// False: there is none.
  bool replace(std::string& name, std::string_view to) const;

  /// Throws Error if `to` has a group that the pattern has not.
  void check_replacement(std::string_view to) const;

 private:
  std::shared_ptr<const re2::RE2> program_;
};

}  // namespace assay
