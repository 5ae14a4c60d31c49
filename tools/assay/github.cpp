#include "github.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "assay/golden/error.h"
#include "log.h"

namespace assay {

bool is_for_github(const OutputOptions& options) {
  if (options.github || options.no_github) return options.github;
  const char* actions = std::getenv("GITHUB_ACTIONS");
  return actions != nullptr && std::string_view(actions) == "true";
}

namespace {

void write_step_summary(const ReportTexts& texts) {
  const char* summary = std::getenv("GITHUB_STEP_SUMMARY");
  if (summary == nullptr || *summary == '\0') return;
  const std::string text = texts.formats.at("markdown")();
  std::FILE* file = std::fopen(summary, "ab");
  bool is_written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr) is_written = std::fclose(file) == 0 && is_written;
  if (!is_written)
    throw Error("GITHUB_STEP_SUMMARY {}: cannot be written ({})", summary, std::strerror(errno));
}

}  // namespace

void tell_github(const ReportTexts& texts, const OutputOptions& options, std::FILE* log) {
  fmt::print(log, "{}", texts.github());
  try {
    write_step_summary(texts);
  } catch (const Error& problem) {
    if (options.github) throw;
    program_log().warn("{}", problem.what());  // nobody asked: the verdict stands
  }
}

}  // namespace assay
