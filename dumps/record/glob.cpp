#include "assay/dumps/record/glob.h"

#include <algorithm>

namespace assay {

bool glob_match(std::string_view pattern, std::string_view text) {
  // Where to resume after the last star: linear in practice, and no recursion on untrusted names.
  std::size_t p = 0, t = 0, star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.substr(p).find_first_not_of('*') == std::string_view::npos;
}

bool glob_match(std::string_view pattern, const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, [&](const std::string& path) { return glob_match(pattern, path); });
}

std::vector<std::string> paths_of(const Identity& id) {
  if (id.slot.empty()) return {id.module};
  return {id.module + "." + id.slot + "." + id.arg, id.module + "." + id.slot, id.module};
}

}  // namespace assay
