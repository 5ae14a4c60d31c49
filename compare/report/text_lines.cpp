#include "assay/compare/report/text_lines.h"

#include <algorithm>

namespace assay {

Lines wrapped(std::string_view text, std::size_t room, std::size_t most) {
  constexpr auto none = std::string_view::npos;
  constexpr std::string_view said_more = " ..";
  const auto can_break = [&](std::size_t space) { return !text.substr(space + 1).starts_with("::"); };
  Lines lines;
  while (text.size() > room) {
    std::size_t end = text.rfind(' ', room);
    while (end != none && !can_break(end)) end = end == 0 ? none : text.rfind(' ', end - 1);
    if (end == none || end == 0) end = text.find(' ', room);
    while (end != none && !can_break(end)) end = text.find(' ', end + 1);
    if (end == none) break;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  lines.emplace_back(text);
  if (lines.size() <= most) return lines;
  lines.resize(most);
  std::string& last = lines.back();
  if (last.size() + said_more.size() > room) last.resize(std::min(last.rfind(' '), last.size()));
  last += said_more;
  return lines;
}

std::size_t room_behind(std::size_t columns, const TextStyle& style) {
  constexpr int narrowest = 60;  // below this, wrapped text is no longer read
  return static_cast<std::size_t>(std::max(style.width, narrowest)) - columns;
}

}  // namespace assay
