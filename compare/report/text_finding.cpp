#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/compare/report/text_lines.h"
#include "assay/compare/result/printable.h"

namespace assay {
namespace {

constexpr std::size_t item_indent = 12;

constexpr std::size_t most_finding_lines = 9;  // half a screen
constexpr std::uint64_t most_ulp = 10'000;     // beyond, the relative error says it better

class FindingLines {
 public:
  /// @param brief  long items end in ".."
  FindingLines(const Finding& finding, const TextStyle& style, bool brief)
      : f_(finding), style_(style), brief_(brief) {}

  Lines write() {
    // That it is outside of its rule decides nothing there.
    const bool is_open = f_.verdict == Verdict::undecided && f_.origin;
    const std::string& why = is_open ? f_.origin->reason : f_.reason;
    item("why", fmt::format("{}{}{}", name(f_.verdict), why.empty() ? "" : ": ", why), is_open ? 4 : 2);
    if (is_open) item("outside", f_.reason);
    for (std::size_t i = 0; i < shown(f_.diagnoses.size(), 1); ++i)  // the most specific comes first
      item("because", sentence(f_.diagnoses[i]), 3);
    if (f_.exemption) item("exempt", sentence(*f_.exemption));
    if (f_.origin && !is_open)
      item("origin", fmt::format("{}: {}", name(f_.origin->kind), f_.origin->reason));
    if (!f_.rule.empty() && f_.verdict != Verdict::replicas_differ) item("rule", f_.rule);
    if (style_.all && !f_.count_source.empty())
      item("count", fmt::format("{} ({})", f_.count.value_or(0), f_.count_source));
    if (f_.metrics) measured(*f_.metrics);
    for (std::size_t i = 0; i < shown(f_.notes.size(), brief_ ? 1 : 2); ++i)
      item("note", f_.notes[i], f_.diagnoses.empty() ? 2 : 1);
    for (const Opinion& o : f_.others)
      item("also", fmt::format("{}: {}, error/allowed {:.3g}", o.policy, name(o.verdict), o.ratio));
    if (!f_.repeat.empty()) line("repeat", printable(f_.repeat));  // whole, to be copied
    return std::move(out_);
  }

 private:
  std::size_t shown(std::size_t available, std::size_t most) const {
    return style_.all ? available : std::min(available, most);
  }
  void line(std::string_view key, std::string_view text) {
    out_.push_back(fmt::format("  {:<9} {}", key, text));
  }
  void item(std::string_view key, std::string_view value, std::size_t most_if_brief = 1) {
    const std::size_t room = room_behind(item_indent, style_);
    const std::string text = printable(value);
    for (const std::string& part : brief_ ? wrapped(text, room, most_if_brief) : wrapped(text, room)) {
      line(key, part);
      key = "";
    }
  }

  void measured(const Metrics& m) {
    const std::int64_t at = worst_element(m);
    if (at >= 0) {
      item("worst",
           fmt::format("{} of {}: actual {}, reference {}", to_string(unravel(at, f_.actual_shape)),
                       to_string(f_.actual_shape), format_value(f_.actual_dtype, f_.actual_value),
                       format_value(f_.reference_dtype, f_.reference_value)),
           2);
    }
    std::string error = fmt::format("max abs {:.2g}, rel L2 {:.2g}", m.max_abs, m.relative_l2);
    if (m.max_ulp < most_ulp && is_float(m.ulp_dtype)) error += fmt::format(", {} ulp", m.max_ulp);
    if (!std::isnan(f_.required) && f_.ratio > 1)
      error += fmt::format("; needs tolerance {:.2g}", f_.required);
    error += fmt::format("; {}", name(f_.actual_dtype));
    if (f_.actual_dtype != f_.reference_dtype) error += fmt::format(" against {}", name(f_.reference_dtype));
    item("error", error);
    if (m.special_mismatch > 0 ||
        m.actual.nan + m.actual.infinite + m.reference.nan + m.reference.infinite > 0) {
      item("special", fmt::format("NaN {} against {}, Inf {} against {}", m.actual.nan, m.reference.nan,
                                  m.actual.infinite, m.reference.infinite));
    }
  }

  const Finding& f_;
  const TextStyle& style_;
  bool brief_;
  Lines out_;
};

}  // namespace

Lines finding_lines(const Finding& finding, const TextStyle& style) {
  Lines lines = FindingLines(finding, style, false).write();
  if (style.all || lines.size() <= most_finding_lines) return lines;
  return FindingLines(finding, style, true).write();
}

}  // namespace assay
