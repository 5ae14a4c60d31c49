#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "assay/compare/report/html/html.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

// Error / allowed over execution order. The script draws the same picture again for a part of the order, with
// the places and shapes that the picture's data-* attributes hand on.
namespace assay {
namespace {

constexpr double left = 52, right = 990, top = 34, bottom = 226, width = right - left;
constexpr double infinite_y = top - 18, zero_y = bottom + 22, missing_y = bottom + 40;  // beyond the scale
constexpr double phase_y = 278, phase_height = 16, phase_text_y = phase_y + 12;
constexpr double letter_width = 6.2;     // of the phases' names
constexpr std::size_t most_dots = 1500;  // more passes become a band
constexpr int most_decades = 12;

// Of a mark, from its place on.
const char* shape_of(std::string_view mark) {
  return mark == "F"   ? "m-3-3l6 6m-6 0l6-6"
         : mark == "W" ? "m0-4l4 7h-8z"
         : mark == "N" ? "m-3-3h6v6h-6z"
                       : "h0";
}

class Chart {
 public:
  Chart(const Report& report, std::string_view id) : report_(report), id_(id), n_(report.findings.size()) {
    int low = -2, high = 1;
    for (const Finding& f : report.findings) {
      if (!is_judged(f) || !(f.ratio > 0) || std::isinf(f.ratio)) continue;
      low = std::min(low, static_cast<int>(std::floor(std::log10(f.ratio))));
      high = std::max(high, static_cast<int>(std::ceil(std::log10(f.ratio))));
    }
    low_ = std::max(low, -most_decades / 2);
    high_ = std::min(high, most_decades);
  }

  std::string svg() {
    std::string out = fmt::format(
        "<svg id=\"{0}\" class=\"chart\" viewBox=\"0 0 1000 302\" role=\"img\" "
        "aria-labelledby=\"{0}-title {0}-desc\"{1}>"
        "<title id=\"{0}-title\">Error over allowed error, by execution order</title><desc "
        "id=\"{0}-desc\">"
        "{2} tensors; those above the line at 1 are outside of their tolerance. The table below has the "
        "numbers.</desc>",
        id_, places(), grouped(static_cast<std::int64_t>(n_)));
    out += scale() + fmt::format("<g id=\"{}\">", own("phases")) + phases() + "</g>";
    passes();
    marks();
    for (const auto& [id, d] : paths_)
      out += fmt::format("<path id=\"{3}-{0}\" class=\"m-{0}\" data-shape=\"{1}\" d=\"{2}\"/>", id,
                         shape_of(id), d, id_);
    return out +
           fmt::format("<rect id=\"{}\" class=\"brush\" y=\"10\" height=\"262\" width=\"0\" x=\"0\"/></svg>",
                       own("brush"));
  }

 private:
  // The script's name for a part, in the chart that it knows.
  std::string own(std::string_view part) const {
    return id_ == "chart" ? std::string(part) : fmt::format("{}-{}", id_, part);
  }

  // For chart.js.
  std::string places() const {
    std::string out;
    for (const auto& [name, value] : {std::pair{"low", 1. * low_},
                                      {"high", 1. * high_},
                                      {"left", left},
                                      {"right", right},
                                      {"top", top},
                                      {"bottom", bottom},
                                      {"infinite", infinite_y},
                                      {"zero", zero_y},
                                      {"missing", missing_y},
                                      {"phase", phase_y},
                                      {"phase-height", phase_height},
                                      {"phase-text", phase_text_y},
                                      {"letter-width", letter_width},
                                      {"most-dots", 1. * most_dots}})
      out += fmt::format(" data-{}=\"{}\"", name, value);
    return out;
  }

  double x(std::size_t i) const {
    return left + width * (static_cast<double>(i) + 0.5) / static_cast<double>(std::max<std::size_t>(n_, 1));
  }
  double y_of_decade(double decade) const {
    return bottom - (bottom - top) * (std::clamp(decade, 1. * low_, 1. * high_) - low_) / (high_ - low_);
  }
  double y(double ratio) const {
    if (std::isnan(ratio) || std::isinf(ratio)) return infinite_y;
    return ratio > 0 ? y_of_decade(std::log10(ratio)) : zero_y;
  }

  std::string scale() const {
    std::string out = "<g class=\"scale\">";
    for (int decade = low_; decade <= high_; ++decade) {
      const double at = y_of_decade(decade);
      out += fmt::format("<path d=\"M{} {:.1f}H{}\"/>", left, at, right);
      if (decade != 0 && (high_ - low_ <= 10 || decade % 2 == 0))
        out += fmt::format("<text x=\"{}\" y=\"{:.1f}\">1e{}</text>", left - 6, at + 4, decade);
    }
    const double limit = y_of_decade(0);
    return out +
           fmt::format(
               "</g><path class=\"limit\" d=\"M{0} {1:.1f}H{2}\"/><g class=\"scale\"><text class=\"one\" "
               "x=\"{3}\" y=\"{4:.1f}\">limit 1</text><text x=\"{3}\" y=\"{5}\">infinite</text><text "
               "x=\"{3}\" y=\"{6}\">equal</text><text x=\"{3}\" y=\"{7}\">none</text></g>",
               left, limit, right, left - 6, limit + 4, infinite_y + 4, zero_y + 4, missing_y + 4);
  }

  // Runs of one phase, with the steps above them.
  std::string phases() const {
    std::string out;
    for (std::size_t i = 0; i < n_;) {
      const Identity& id = report_.findings[i].id;
      std::size_t end = i + 1;
      while (end < n_ && report_.findings[end].id.phase == id.phase &&
             report_.findings[end].id.step == id.step)
        ++end;
      const double from = x(i) - width / static_cast<double>(2 * n_),
                   wide = width * static_cast<double>(end - i) / static_cast<double>(n_);
      if (id.phase != Phase::none && wide >= 1) {
        out += fmt::format("<rect class=\"ph{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>",
                           static_cast<int>(id.phase), from, phase_y, wide, phase_height);
        const std::string text = fmt::format("step {} {}", id.step, name(id.phase));
        if (wide > letter_width * static_cast<double>(text.size()))
          out += fmt::format("<text class=\"pht\" x=\"{:.1f}\" y=\"{}\">{}</text>", from + wide / 2,
                             phase_text_y, text);
      }
      i = end;
    }
    return out;
  }

  // Dots, or where they are many the range of each pair of pixels.
  void passes() {
    std::string& dots = paths_["P"];
    std::map<int, std::pair<double, double>> band;
    std::set<int> equal;
    for (std::size_t i = 0; i < n_; ++i) {
      const Finding& f = report_.findings[i];
      if (f.verdict != Verdict::passed) continue;
      if (n_ <= most_dots) {
        dots += fmt::format("M{:.1f} {:.1f}{}", x(i), y(f.ratio), shape_of("P"));
        continue;
      }
      const int column = static_cast<int>(x(i) / 2);
      if (f.ratio == 0) {
        equal.insert(column);
        continue;
      }
      const auto [at, is_new] = band.try_emplace(column, y(f.ratio), y(f.ratio));
      at->second = {std::min(at->second.first, y(f.ratio)), std::max(at->second.second, y(f.ratio))};
    }
    std::string& bars = paths_["band"];
    for (const auto& [column, range] : band)
      bars += fmt::format("M{} {:.0f}V{:.0f}", 2 * column + 1, range.first - 1, range.second + 1);
    for (const int column : equal) bars += fmt::format("M{} {}v4", 2 * column + 1, zero_y - 2);
  }

  void marks() {
    std::map<char, std::set<std::pair<int, int>>> seen;  // what lies on each other is drawn once
    for (std::size_t i = 0; i < n_; ++i) {
      const Finding& f = report_.findings[i];
      const char kind = mark(f.verdict);
      if (kind == 'P' || kind == '-') continue;
      const double fx = x(i), fy = is_judged(f) ? y(f.ratio) : missing_y;
      if (!seen[kind].emplace(static_cast<int>(fx / 4), static_cast<int>(fy / 4)).second) continue;
      const std::string part(1, kind);
      paths_[part] += fmt::format("M{:.1f} {:.1f}{}", fx, fy, shape_of(part));
    }
  }

  const Report& report_;
  std::string id_;
  std::size_t n_;
  int low_ = -2, high_ = 1;
  std::map<std::string, std::string> paths_ = {{"F", ""}, {"N", ""}, {"P", ""}, {"W", ""}, {"band", ""}};
};

}  // namespace

std::string chart_svg(const Report& report, std::string_view id) {
  return Chart(report, id).svg();
}

}  // namespace assay
