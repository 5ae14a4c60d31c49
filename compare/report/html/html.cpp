#include "assay/compare/report/html/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

namespace assay {

char mark(Verdict v) {
  constexpr std::string_view marks = "PPFWWFWWNNNNNN-";
  static_assert(marks.size() == verdict_count);
  return marks[static_cast<std::size_t>(v)];
}

std::string short_number(double v) {
  if (!std::isfinite(v)) return fmt::format("{}", v);
  const double rounded = std::stod(fmt::format("{:.2e}", v));
  if (rounded == 0 || (std::abs(rounded) >= 1e-4 && std::abs(rounded) < 1e5))
    return fmt::format("{}", rounded);
  std::string text = fmt::format("{:.3g}", rounded);
  if (const std::size_t e = text.find('e'); text[e + 2] == '0') text.erase(e + 2, 1);
  return text;
}

std::string html_code(std::string_view text) {
  return fmt::format("<code>{}</code>", html_text(text));
}

std::string html_item(std::string_view key, std::string_view html) {
  return html.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>", key, html);
}

std::string html_badge(char mark, std::string_view word) {
  return fmt::format("<span class=\"v v-{0}\"><i class=\"k k-{0}\"></i>{1}</span>", mark == '-' ? 'I' : mark,
                     word);
}

std::string html_badge(Verdict v) {
  return html_badge(mark(v), name(v));
}

HtmlTable::HtmlTable(std::string_view caption, std::initializer_list<std::string_view> heads) {
  out_ = fmt::format("<table class=\"plain\"><caption>{}</caption><thead><tr>", caption);
  for (const std::string_view head : heads) out_ += fmt::format("<th scope=\"col\">{}</th>", head);
  out_ += "</tr></thead><tbody>";
}

void HtmlTable::row(std::initializer_list<std::string> cells) {
  out_ += "<tr>";
  for (const std::string& cell : cells) out_ += fmt::format("<td>{}</td>", cell);
  out_ += "</tr>";
}

std::string HtmlTable::end() {
  return std::move(out_) + "</tbody></table>";
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= n ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace assay
