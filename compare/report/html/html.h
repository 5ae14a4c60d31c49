#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/compare/report/html/heat_grid.h"
#include "assay/compare/result/finding.h"
#include "assay/compare/result/printable.h"

/// The parts of the HTML report that are written by the program itself; the script of the page adds to them.
namespace assay {

/// <code>, <dt> and <dd> (nothing for an empty value), a verdict with its mark.
std::string html_code(std::string_view text);
std::string html_item(std::string_view key, std::string_view html);
std::string html_badge(Verdict);
/// A word with one of these marks.
std::string html_badge(char mark, std::string_view word);
class HtmlTable {
 public:
  HtmlTable(std::string_view caption, std::initializer_list<std::string_view> heads);
  void row(std::initializer_list<std::string> cells);  ///< as HTML
  std::string end();

 private:
  std::string out_;
};

/// How a verdict is drawn: 'P'assed, 'F'ailed, 'W'arning (inherited, mistrusted, no rule), 'N'ot compared,
/// '-' ignored.
char mark(Verdict);
/// error / allowed as one of nine shades: '0' no error, '1' to '4' inside, '5' to '7' outside, '8' infinite.
char shade(double ratio);
/// The shades of a map's cells, row by row.
std::string shades(const ErrorMap&);
/// Three digits, as the script prints them: "1250", "4.5e-7", "2.02e+9", "inf".
std::string short_number(double);

/// Pictures as SVG. Each has a title and carries the numbers that the script needs to read a pointer.
/// @param id  another one for each chart of a page; the script knows the first
std::string chart_svg(const Report&, std::string_view id = "chart");
std::string heat_svg(const Report&, const HeatGrid&, std::string_view id);
std::string error_map_svg(const ErrorMap&);
std::string histogram_svg(std::span<const std::int64_t> ulp_histogram, std::string_view dtype);

/// The first screen: the verdict in a sentence, the counts, both sides.
std::string verdict_html(const Report&);
/// Everything about one tensor.
std::string finding_html(const Finding&);
/// "256 of 131,072 elements (0.2 %)": those outside.
std::string share_outside(const Metrics&);
/// A statistic of both sides: its name, actual, reference, allowed.
std::array<std::string, 4> statistic_cells(const ComparedStatistic&);
/// "256 outside, within rows 48 to 63, columns 80 to 95: all of the elements there."
std::string extent_of_errors(const ErrorMap&);
/// The failures with folded layers, the deciding rules, the tensors that were not compared with their
/// reasons, and the notes.
std::string overview_html(const Report&);
/// The table rows that are shown without a script: the worst findings that did not pass.
std::string worst_rows_html(const Report&);

/// All findings for the script: JSON and columns, deflated, in base64. Stays within `budget` bytes by leaving
/// out the least important data, which `left_out` names.
std::string page_data(const Report&, std::span<const HeatGrid>, std::size_t budget, std::string& left_out);
std::string base64(std::string_view bytes);

/// {{name}} in the page becomes the value; values are never looked into.
using HtmlValues = std::vector<std::pair<std::string_view, std::string>>;
std::string html_filled(std::string_view page, const HtmlValues&);
/// As a content security policy names a script or style: nothing else on the page runs.
std::string html_hash_source(std::string_view sha256);

}  // namespace assay
