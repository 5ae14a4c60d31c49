#include <fmt/format.h>

#include <algorithm>

#include "assay/align/ladder/ladder_lines.h"
#include "assay/align/ladder/ladder_pictures.h"
#include "assay/compare/report/html/html.h"

namespace assay::align {
namespace {

using State = RungResult::State;

constexpr double left_rail = 262, cells = 278, cell_width = 140, cell_gap = 8, bar = 26, step = 40, top = 30;
constexpr double right_rail = cells + 3 * cell_width + 2 * cell_gap + 16, remarks = right_rail + 18;
constexpr double width = 1140;
constexpr std::size_t most_of_name = 34, most_of_remark = 48;

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a letter
  return text.substr(0, end) + "..";
}

// A mark of the chart's shapes.
std::string glyph(char mark, double x, double y) {
  switch (mark) {
    case 'P':
      return fmt::format("<circle class=\"g-P\" cx=\"{}\" cy=\"{}\" r=\"4.5\"/>", x, y);
    case 'F':
      return fmt::format("<path class=\"g-F\" d=\"M{} {}l9 9m-9 0l9-9\"/>", x - 4.5, y - 4.5);
    case 'W':
      return fmt::format("<path class=\"g-W\" d=\"M{} {}l5.5 9.5h-11z\"/>", x, y - 5.5);
    default:
      return fmt::format("<path class=\"g-N\" d=\"M{} {}h8v8h-8z\"/>", x - 4, y - 4);
  }
}

std::string box(std::string_view kind, double x, double y, double wide) {
  return fmt::format("<rect class=\"c {}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/>", kind, x,
                     y, wide, bar);
}

// What came of the phases; across all of them what kept them from being judged.
std::string bars(const RungResult& r, double y) {
  const double all = 3 * cell_width + 2 * cell_gap, middle = y + bar / 2;
  const auto across = [&](std::string_view kind, const std::string& text) {
    return box(kind, cells, y, all) + fmt::format("<text class=\"cell\" x=\"{}\" y=\"{}\">{}</text>",
                                                  cells + all / 2, middle + 4.5, text);
  };
  if (r.state == State::held) return across("c-H", "held");
  if (r.state == State::left_out) return across("c-I", "left out");
  if (r.state == State::trouble) return across("c-F", "trouble: nothing could be judged");
  if (r.from_cache) return across("c-P", "passed before");
  std::string out;
  for (std::size_t k = 0; k < r.phases.size(); ++k) {
    const double x = cells + static_cast<double>(k) * (cell_width + cell_gap);
    const char m = mark(r.phases[k]);
    out += box(fmt::format("c-{}", m), x, y, cell_width) + glyph(m, x + 16, middle) +
           fmt::format("<text class=\"cell\" x=\"{}\" y=\"{}\">{}</text>", x + cell_width / 2 + 8,
                       middle + 4.5, cell_text(r.phases[k]));
  }
  return out;
}

std::string remark(const RungResult& r) {
  const std::int64_t n = r.rung.parallel.ranks();
  std::string text = fmt::format("{} rank{}", n, n == 1 ? "" : "s");
  if (r.state == State::passed || r.state == State::failed) {
    if (!r.from_cache) text += fmt::format(", {:.1f} s, {}", r.seconds, r.rule);
    return text + (r.pinned ? ", pinned routing" : "");
  }
  return text + ", " + r.reason;
}

}  // namespace

std::string ladder_svg(const LadderResult& result) {
  const std::size_t n = result.rungs.size();
  const double height = top + step * static_cast<double>(n) + 14;
  std::string out = fmt::format(
      "<svg class=\"ladder\" viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"ladder-title "
      "ladder-desc\"><title id=\"ladder-title\">The stages, the first at the bottom</title><desc "
      "id=\"ladder-desc\">{}. The table of stages has the numbers.</desc>",
      width, height, html_text(counts_text(result)));
  for (std::size_t k = 0; k < 3; ++k)
    out += fmt::format("<text class=\"head\" x=\"{}\" y=\"16\">{}</text>",
                       cells + cell_width / 2 + static_cast<double>(k) * (cell_width + cell_gap),
                       phase_names[k]);
  for (const double x : {left_rail, right_rail})
    out += fmt::format("<path class=\"rail\" d=\"M{} {}V{}\"/>", x, top, height - 6);
  for (std::size_t i = 0; i < n; ++i) {
    const RungResult& r = result.rungs[i];
    const double y = top + step * static_cast<double>(n - 1 - i) + (step - bar) / 2,
                 text_y = y + bar / 2 + 4.5;
    const bool is_smallest = std::ranges::find(result.failing, i) != result.failing.end(),
               is_open = r.state == State::held || r.state == State::left_out;
    const std::string about = remark(r);
    out += fmt::format("<g><title>{}: {}{}{}</title>", html_text(r.rung.name), name(r.state),
                       r.reason.empty() ? "" : ", ", html_text(r.reason));
    if (is_smallest)
      out += fmt::format("<rect class=\"here\" x=\"4\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"7\"/>", y - 6,
                         width - 8, bar + 12);
    out += fmt::format("<rect class=\"on-paper\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/>",
                       cells, y, 3 * cell_width + 2 * cell_gap, bar);
    out += bars(r, y);
    out += fmt::format("<text class=\"stage{}\" x=\"{}\" y=\"{}\">{}</text>", is_open ? " open" : "",
                       left_rail - 16, text_y, html_text(shortened(r.rung.name, most_of_name)));
    out += fmt::format("<text{} x=\"{}\" y=\"{}\">{}{}</text></g>", is_smallest ? " class=\"what\"" : "",
                       remarks, text_y, html_text(shortened(about, most_of_remark)),
                       is_smallest ? ": smallest that fails" : "");
  }
  return out + "</svg>";
}

}  // namespace assay::align
