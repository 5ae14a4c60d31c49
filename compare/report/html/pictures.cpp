#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <vector>

#include "assay/compare/report/html/html.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

namespace assay {
namespace {

// One path per shade: runs of equal cells in a row are one rectangle.
std::string cells_svg(std::string_view shade_of, int rows, int columns, double width, double height,
                      double left = 0, double top = 0) {
  std::map<char, std::string> paths;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns;) {
      const auto at =
          static_cast<std::size_t>(r) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c);
      int end = c + 1;
      while (end < columns && shade_of[at + static_cast<std::size_t>(end - c)] == shade_of[at]) ++end;
      if (shade_of[at] != ' ')
        paths[shade_of[at]] += fmt::format("M{:g} {:g}h{:g}v{:g}h{:g}z", left + c * width, top + r * height,
                                           (end - c) * width, height, (c - end) * width);
      c = end;
    }
  }
  std::string out;
  for (const auto& [s, d] : paths) out += fmt::format("<path class=\"z{}\" d=\"{}\"/>", s, d);
  return out;
}

// The end of a path tells more than its beginning. No UTF-8 sequence is broken.
std::string last_of(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t begin = text.size() - most + 2;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) ++begin;
  return ".." + text.substr(begin);
}

// What stands for the tensors of one cell of a heat map: the worst of them.
struct Cell {
  int severity = 0;  // of the verdict's mark
  double ratio = 0;
  std::int64_t count = 0;
};

int severity(char mark) {
  return static_cast<int>(std::string_view("-PNWF").find(mark));
}

}  // namespace

char shade(double ratio) {
  if (std::isnan(ratio) || std::isinf(ratio)) return '8';
  if (!(ratio > 0)) return '0';
  constexpr std::array<double, 6> limits = {0.01, 0.1, 0.5, 1, 10, 1000};
  return static_cast<char>('1' + (std::ranges::lower_bound(limits, ratio) - limits.begin()));
}

std::string shades(const ErrorMap& map) {
  double largest = 0;
  for (const double cell : map.cells) {
    if (!std::isinf(cell)) largest = std::max(largest, cell);
  }
  std::string out;
  for (const double cell : map.cells) {
    // Where nothing is allowed, every error is outside: shades by its share of the largest.
    const bool by_share = !map.in_units_of_allowed && cell > 0 && !std::isinf(cell);
    out += !by_share ? shade(cell) : cell <= largest / 100 ? '5' : cell <= largest / 4 ? '6' : '7';
  }
  return out;
}

std::string heat_svg(const Report& report, const HeatGrid& grid, std::string_view id) {
  const int rows = static_cast<int>(grid.rows.size()), columns = static_cast<int>(grid.columns.size());
  std::vector<Cell> cells(grid.rows.size() * grid.columns.size());
  for (std::size_t i = 0; i < report.findings.size(); ++i) {
    if (grid.row[i] < 0 || grid.column[i] < 0) continue;
    const Finding& f = report.findings[i];
    Cell& cell = cells[static_cast<std::size_t>(grid.row[i]) * grid.columns.size() +
                       static_cast<std::size_t>(grid.column[i])];
    const int s = severity(mark(f.verdict));
    if (s == cell.severity) cell.ratio = std::max(cell.ratio, f.ratio);
    if (s > cell.severity || cell.count == 0) cell = {s, f.ratio, cell.count};
    ++cell.count;
  }
  // Few cells may be large; the columns' labels stand upright above them.
  const double cw = std::clamp(880.0 / columns, 12.0, 34.0), ch = rows > 40 ? 11 : 16;
  std::size_t longest = 0, longest_row = 0;
  for (const std::string& c : grid.columns) longest = std::max(longest, last_of(printable(c), 34).size());
  for (const std::string& r : grid.rows)
    longest_row = std::max(longest_row, last_of(printable(r), 24).size());
  const double left = 14 + 6.6 * static_cast<double>(longest_row),
               top = 14 + 5.9 * static_cast<double>(longest);
  std::string shade_of, fail_marks, warn_marks;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    const double cx = left + cw * (static_cast<double>(i % grid.columns.size()) + 0.5);
    const double cy = top + ch * (static_cast<double>(i / grid.columns.size()) + 0.5);
    if (cell.count == 0) {
      shade_of += ' ';
    } else if (cell.severity == severity('F')) {
      shade_of += std::max(shade(cell.ratio), '5');
      fail_marks += fmt::format("M{:.1f} {:.1f}m-3-3l6 6m-6 0l6-6", cx, cy);
    } else if (cell.severity == severity('W')) {
      shade_of += 'w';
      warn_marks += fmt::format("M{:.1f} {:.1f}m0-4l4 7h-8z", cx, cy);
    } else {
      shade_of += cell.severity == severity('N')   ? 'n'
                  : cell.severity == severity('-') ? 'i'
                                                   : shade(cell.ratio);
    }
  }
  std::string out = fmt::format(
      "<svg id=\"{0}\" class=\"heat\" viewBox=\"0 0 {1:.0f} {2:.0f}\" width=\"{1:.0f}\" role=\"img\" "
      "aria-labelledby=\"{0}-title\" data-left=\"{3:.2f}\" data-top=\"{4:.2f}\" data-w=\"{5:.4f}\" "
      "data-h=\"{6}\">"
      "<title id=\"{0}-title\">{7}: the worst tensor of each cell</title>",
      id, left + cw * columns + 12, top + ch * rows + 8, left, top, cw, ch, html_text(grid.title));
  out += cells_svg(shade_of, rows, columns, cw, ch, left, top);
  out += fmt::format("<path class=\"on-f\" d=\"{}\"/><path class=\"on-w\" d=\"{}\"/><g class=\"labels\">",
                     fail_marks, warn_marks);
  for (int r = 0; r < rows; ++r) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", left - 6, top + ch * (r + 0.5) + 4,
                       html_text(last_of(printable(grid.rows[static_cast<std::size_t>(r)]), 24)));
  }
  out += "</g><g class=\"labels up\">";
  for (int c = 0; c < columns; ++c) {
    out += fmt::format("<text transform=\"translate({:.1f} {:.1f})rotate(-90)\">{}</text>",
                       left + cw * (c + 0.5) + 4, top - 6,
                       html_text(last_of(printable(grid.columns[static_cast<std::size_t>(c)]), 34)));
  }
  return out + "</g></svg>";
}

std::string error_map_svg(const ErrorMap& map) {
  // Square cells where that fits, else stretched: a row vector is a bar, not a line.
  const double w = 320.0 / std::max(map.grid_columns, 1), h = std::clamp(w, 4.0, 24.0);
  return fmt::format(
             "<svg class=\"map\" viewBox=\"0 0 320 {0:g}\" role=\"img\"><title>Where the errors are: {1} "
             "rows by "
             "{2} columns in {3} by {4} cells</title>",
             h * map.grid_rows, grouped(map.rows), grouped(map.columns), map.grid_rows, map.grid_columns) +
         cells_svg(shades(map), map.grid_rows, map.grid_columns, w, h) + "</svg>";
}

std::string histogram_svg(std::span<const std::int64_t> bins, std::string_view dtype) {
  std::int64_t most = 1;
  for (const std::int64_t n : bins) most = std::max(most, n);
  const double w = std::clamp(320.0 / static_cast<double>(std::max<std::size_t>(bins.size(), 1)), 4.0, 24.0);
  std::string out = fmt::format(
      "<svg class=\"histogram\" viewBox=\"0 0 320 132\" role=\"img\"><title>Elements by their error in units "
      "in "
      "the last place of {}, both on a log scale</title>",
      html_text(dtype));
  const std::size_t labels_every = bins.size() > 24 ? 8 : bins.size() > 12 ? 4 : 2;
  for (std::size_t k = 0; k < bins.size(); ++k) {
    const double x = w * static_cast<double>(k);
    if (bins[k] > 0) {
      const double h =
          6 + 100 * std::log1p(static_cast<double>(bins[k])) / std::log1p(static_cast<double>(most));
      const std::string range = k == 0   ? "equal"
                                : k == 1 ? "1 ulp"
                                         : fmt::format("2^{} to 2^{} ulp", k - 1, k);
      out += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{}: {} "
          "elements</title></rect>",
          k == 0 ? "b0" : "b", x + 0.5, 112 - h, w - 1, h, range, grouped(bins[k]));
    }
    if (k == 0 || (k - 1) % labels_every == 0)
      out += fmt::format("<text x=\"{:.1f}\" y=\"126\">{}</text>", x + w / 2,
                         k == 0   ? "0"
                         : k <= 4 ? fmt::format("{}", 1 << (k - 1))
                                  : fmt::format("2^{}", k - 1));
  }
  return out + "</svg>";
}

}  // namespace assay
