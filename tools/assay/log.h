#pragma once

#include <filesystem>
#include <string>

#include "assay/golden/log.h"

namespace assay {

/// --log-level and --log-file as they were given; empty: they were not.
struct LogOptions {
  std::string level, file;
};

/// Opens the log of this program. The level is that of the options, else of ASSAY_LOG, else warn. Lines go to
/// standard error; with a file they are added to it, and standard error gets only warnings and errors.
///
///     2026-01-31T12:00:00.123+00:00 info align - tp-sp exit status 0 after 1.25 s
///     time                          level verb rank stage message
///
/// @throws Error  for a level that does not exist, and a file that cannot be written or is no log
void open_log(const LogOptions&, const std::string& verb);
/// Silent until the log is open.
const Log& program_log();
/// The same log, whose lines are added to this file, too, from level debug on.
/// @throws Error  if the file cannot be written or is no log
Log with_log_file(const std::filesystem::path&);
/// Writes what is still waiting. Nothing is logged behind it.
void close_log();

}  // namespace assay
