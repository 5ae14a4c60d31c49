#pragma once

#include <cstdio>

#include "output.h"

namespace assay {

/// --github and --no-github decide; else whether a GitHub workflow runs this (GITHUB_ACTIONS=true).
bool is_for_github(const OutputOptions&);

/// Annotations to the log, and the report to the file that GITHUB_STEP_SUMMARY names, behind what is there.
/// If that cannot be written: throws Error where --github asked for it, else a warning of the log.
void tell_github(const ReportTexts&, const OutputOptions&, std::FILE* log);

}  // namespace assay
