#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "assay/golden/error.h"
#include "terminal.h"

namespace assay {
namespace {

std::ptrdiff_t reports_on_stdout(const OutputOptions& options) {
  const std::string files[] = {options.json, options.csv, options.junit, options.markdown};
  return std::ranges::count(files, "-");
}

}  // namespace

void write_text(const std::string& file, const std::string& text) {
  if (file == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw Error("standard output: cannot be written ({})", std::strerror(errno));
    }
    return;
  }
  // A file is written beside its place and renamed, so that a full disk leaves no half report. A pipe or a
  // device stays what it is, and so does a link.
  std::error_code none;
  const std::filesystem::path target = std::filesystem::canonical(file, none);
  const std::string place = none ? file : target.string();
  const bool renames = none || std::filesystem::is_regular_file(target);
  const std::string part = renames ? place + ".part" : place;
  const auto fail = [&](int reason) {
    throw Error("{}: cannot be written ({})", file, std::strerror(reason));
  };
  std::FILE* out = std::fopen(part.c_str(), "wb");
  if (out == nullptr) fail(errno);
  const bool whole = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool closed = std::fclose(out) == 0;
  if (whole && closed && (!renames || std::rename(part.c_str(), place.c_str()) == 0)) return;
  const int reason = errno;
  if (renames) std::remove(part.c_str());
  fail(reason);
}

int write_report(const Report& report, const OutputOptions& options) {
  const bool takes_stdout = reports_on_stdout(options) > 0;
  if (!takes_stdout) write_text("-", to_text(report, {use_color(options.color), options.all}));
  if (!options.json.empty()) write_text(options.json, to_json(report));
  if (!options.csv.empty()) write_text(options.csv, to_csv(report));
  if (!options.junit.empty()) write_text(options.junit, to_junit(report));
  if (!options.markdown.empty()) write_text(options.markdown, to_markdown(report));
  return report.exit_status();
}

void expect_one_on_stdout(const OutputOptions& options) {
  if (reports_on_stdout(options) > 1)
    throw Error("more than one report goes to standard output; expected '-' once, and files for the others");
}

std::vector<Policy> load_policies(const std::vector<std::string>& names) {
  std::vector<Policy> policies;
  for (const std::string& name : names) policies.push_back(load_policy(name));
  return policies;
}

int thread_count(int option) {
  if (option < 0) throw Error("--threads {}: expected a number >= 0", option);
  return option > 0 ? option : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::optional<DType> parse_hint(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype) throw Error("--dtype-hint {}: is no dtype; expected a torch name such as bfloat16", text);
  return dtype;
}

}  // namespace assay
