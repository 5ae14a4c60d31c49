#pragma once

#include <exception>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/compare/report/report.h"
#include "assay/compare/result/finding.h"
#include "options.h"

namespace assay {

/// Where one report goes.
struct ReportFile {
  std::string_view format;  ///< ReportFormat::name
  std::string path;         ///< empty: it is not asked for; "-": standard output
  bool shows_error_maps = false;
};

/// Where the reports of a verb go, besides the terminal.
struct OutputOptions {
  std::vector<ReportFile> files;           ///< one for each format that the verb has
  bool github = false, no_github = false;  ///< neither: if GitHub runs it
  std::string color = "auto";
  bool all = false;
  std::string command;  ///< as it was given, for the reports
};

/// The option of one format, and --github with --no-github.
void add_report(Options&, ReportFile&, const std::string& help);
void add_github(Options&, OutputOptions&);
/// --json and its like, one for each format, and --github with its like.
template <class... Subject>
void add_reports(Options& options, OutputOptions& output, std::span<const ReportFormat<Subject...>> formats) {
  for (const ReportFormat<Subject...>& f : formats) output.files.push_back({f.name, "", f.shows_error_maps});
  for (std::size_t i = 0; i < formats.size(); ++i)
    add_report(options, output.files[i], std::string(formats[i].help));
  add_github(options, output);
  output.command = options.command();
}
/// The options of all that shows a Report: the above, --color and --all.
void add_output(Options&, OutputOptions&);

/// Before any work: throws Error if two reports go to one place, one would replace an input or lie in it, or
/// one cannot be written.
void check_outputs(const OutputOptions&, const std::vector<std::string>& inputs);

/// Whether the path lies in that folder.
bool is_below(const std::string& path, const std::string& folder);

/// What each report says of a result.
struct ReportTexts {
  std::map<std::string_view, std::function<std::string()>> formats;  ///< by ReportFormat::name
  std::function<std::string()> github;                               ///< annotations
  /// The terminal's, which names the files that were written.
  std::function<std::string(const std::vector<std::string>& written)> terminal;
};
/// ReportTexts::formats of a result, which has to outlive them.
template <class... Subject>
auto texts_of(std::span<const ReportFormat<Subject...>> formats, const Subject&... subject) {
  std::map<std::string_view, std::function<std::string()>> texts;
  for (const ReportFormat<Subject...>& f : formats)
    texts[f.name] = [write = f.write, &subject...] { return write(subject...); };
  return texts;
}

/// Whether a report goes to standard output, which then shows nothing else.
bool takes_stdout(const OutputOptions&);

/// Writes to the terminal and wherever else was asked.
/// Files appear whole or not at all. Throws Error if one cannot be written.
void write_reports(const ReportTexts&, const OutputOptions&);
/// The same of a comparison; returns the exit status.
/// @param before  for the terminal, above the verdict
int write_report(Report, const OutputOptions&, const std::string& before = "");

/// How many error maps the reports that were asked for can show.
int error_maps(const OutputOptions&);

/// What went wrong, in a sentence; of memory that is not there, too.
std::string sentence(const std::exception&);
/// Says it on standard error; returns the exit status.
int trouble(const std::exception&);

/// `text` to the file, or to the stream that its name stands for: "-", "/dev/stdout", "/dev/stderr".
void write_text(const std::string& file, const std::string& text);

}  // namespace assay
