#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/compare/result/finding.h"
#include "assay/compare/rules/policy.h"
#include "assay/dumps/record/dump.h"
#include "verbs.h"

namespace assay {

/// Before any work: throws Error if two reports go to one place, one would replace an input or lie in it, or
/// one cannot be written.
void check_outputs(const OutputOptions&, const std::vector<std::string>& inputs);

/// Whether the path lies in that folder.
bool is_below(const std::string& path, const std::string& folder);

/// What each kind of report says of a result; nothing where a verb has no such.
struct ReportTexts {
  std::function<std::string()> json, jsonl, csv, html, junit, markdown;
  std::function<std::string()> github;  ///< annotations
  /// The terminal's, which names the files that were written.
  std::function<std::string(const std::vector<std::string>& written)> terminal;
};

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

/// `text` to the file, or to the stream that its name stands for: "-", "/dev/stdout", "/dev/stderr".
void write_text(const std::string& file, const std::string& text);

/// Policies by name or file, for --tolerance.
std::vector<Policy> load_policies(const std::vector<std::string>&);

/// The number of worker threads for --threads: 0 means one per core.
int thread_count(int option);

/// An option's text as a dtype; empty: none. Throws Error for an unknown one.
std::optional<DType> parse_dtype_option(std::string_view option, const std::string& text);

/// --dtype-hint and --raw; empty: none. Throws Error for a value that is none.
OpenOptions open_options(const std::string& dtype_hint, const std::string& raw);

}  // namespace assay
