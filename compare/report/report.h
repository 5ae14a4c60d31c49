#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/result/finding.h"

/// One Report, written for people and for machines. Every writer returns the whole text. Names come from
/// files that nobody vouches for: each writer escapes what its format could misread.
namespace assay {

struct TextStyle {
  bool color = false;
  bool all = false;                  ///< every finding on its own line, nothing folded
  int width = 80;                    ///< columns; longer remarks are wrapped, names and commands are not
  std::vector<std::string> written;  ///< files that the last line names
};
/// Verdict first, the first failure in full, then the others folded up the module tree, some 20 lines in all;
/// the last line counts.
std::string to_text(const Report&, const TextStyle&);
/// One object as report.schema.json describes it; numbers as numbers, NaN and infinities as the strings
/// "nan", "inf", "-inf".
std::string to_json(const Report&);
/// The same as JSON Lines: a header, one finding a line, a summary.
std::string to_jsonl(const Report&);
/// One row per tensor (RFC 4180); a leading '=', '+', '-' or '@' is disarmed with an apostrophe.
std::string to_csv(const Report&);
/// Verdict, counts and the worst findings as a table (GitHub flavour); no more than 60 kB.
std::string to_markdown(const Report&);
/// GitHub's workflow commands: an error for the first failure, a notice with the counts.
std::string to_github_annotations(const Report&);
/// One test case per step, phase and module, unique; failures list their tensors.
std::string to_junit(const Report&);
/// One page that needs nothing else, offline and below 5 MB: what it must leave out for that, it says.
std::string to_html(const Report&);

/// A format of reports, of which the command line has an option: "json" is written by --json FILE.
/// @tparam Subject  that a report is made from: a Report, or the result of an alignment
template <class... Subject>
struct ReportFormat {
  std::string_view name;
  std::string_view help;
  std::string (*write)(const Subject&...);
  bool shows_error_maps = false;  ///< Finding::error_map, each a second pass over its tensor
};

/// All formats of a Report that go into a file, in the order of --help. A new one has a row here and a file.
std::span<const ReportFormat<Report>> report_formats();

}  // namespace assay
