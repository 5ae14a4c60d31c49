#pragma once

#include <optional>
#include <string>
#include <vector>

#include "assay/compare/policy.h"
#include "assay/compare/report.h"
#include "verbs.h"

namespace assay {

/// Writes the report to the terminal and wherever else was asked; returns the exit status.
/// Files appear whole or not at all. Throws Error if one cannot be written.
int write_report(const Report&, const OutputOptions&);

/// Throws Error if two reports are asked to share standard output; to be called before the work.
void expect_one_on_stdout(const OutputOptions&);

/// `text` to the file, or to standard output for "-".
void write_text(const std::string& file, const std::string& text);

/// Policies by name or file, for --tolerance.
std::vector<Policy> load_policies(const std::vector<std::string>&);

/// The number of worker threads for --threads: 0 means one per core.
int thread_count(int option);

/// --dtype-hint as a dtype; empty: none. Throws Error for an unknown one.
std::optional<DType> parse_hint(const std::string&);

}  // namespace assay
