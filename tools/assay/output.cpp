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

void write_text(const std::string& file, const std::string& text) {
  if (file == "-") {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw Error("standard output: cannot be written ({})", std::strerror(errno));
    }
    return;
  }
  // Written beside its place and renamed: a full disk leaves no half report.
  const std::string part = file + ".part";
  std::FILE* out = std::fopen(part.c_str(), "wb");
  if (out == nullptr) throw Error("{}: cannot be written ({})", file, std::strerror(errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool closed = std::fclose(out) == 0;
  if (!whole || !closed || std::rename(part.c_str(), file.c_str()) != 0) {
    const int reason = errno;
    std::remove(part.c_str());
    throw Error("{}: cannot be written ({})", file, std::strerror(reason));
  }
}

int write_report(const Report& report, const OutputOptions& options) {
  const bool takes_stdout = std::ranges::any_of(
      std::initializer_list<std::string>{options.json, options.csv, options.junit, options.markdown},
      [](const std::string& file) { return file == "-"; });
  if (!takes_stdout) write_text("-", to_text(report, {use_color(options.color), options.all}));
  if (!options.json.empty()) write_text(options.json, to_json(report));
  if (!options.csv.empty()) write_text(options.csv, to_csv(report));
  if (!options.junit.empty()) write_text(options.junit, to_junit(report));
  if (!options.markdown.empty()) write_text(options.markdown, to_markdown(report));
  return report.exit_status();
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
