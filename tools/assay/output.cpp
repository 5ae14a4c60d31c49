#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "assay/compare/report/report.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"
#include "github.h"
#include "terminal.h"

namespace assay {

std::string sentence(const std::exception& problem) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&problem) != nullptr ||
                         dynamic_cast<const std::length_error*>(&problem) != nullptr;
  return is_memory
             ? "the tensors of this call do not fit into memory; expected smaller extents or more memory"
             : problem.what();
}

namespace {

// The stream that stands for the file's name, if one does: opened again it would start at its beginning.
std::FILE* stream_of(const std::string& file) {
  if (file == "-" || file == "/dev/stdout") return stdout;
  return file == "/dev/stderr" ? stderr : nullptr;
}

}  // namespace

void write_text(const std::string& file, const std::string& text) {
  std::FILE* const stream = stream_of(file);
  if (stream == nullptr) return write_whole(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stream) != text.size() || std::fflush(stream) != 0) {
    throw Error("standard {}: cannot be written ({})", stream == stdout ? "output" : "error",
                std::strerror(errno));
  }
}

namespace {

constexpr int most_error_maps = 50;  // each is a second pass over its tensor

struct Target {
  std::string_view option;
  const std::string& file;
  std::function<std::string()> ReportTexts::*text;
};
std::array<Target, 6> targets_of(const OutputOptions& o) {
  return {{{"--json", o.json, &ReportTexts::json},
           {"--jsonl", o.jsonl, &ReportTexts::jsonl},
           {"--csv", o.csv, &ReportTexts::csv},
           {"--html", o.html, &ReportTexts::html},
           {"--junit", o.junit, &ReportTexts::junit},
           {"--markdown", o.markdown, &ReportTexts::markdown}}};
}

// weakly_canonical alone leaves the name of a file in this folder relative where there is none yet, and has
// no name for an open pipe.
std::filesystem::path place_of(const std::string& file) {
  std::error_code none;
  const std::filesystem::path absolute = std::filesystem::absolute(file, none);
  const std::filesystem::path place = std::filesystem::weakly_canonical(absolute, none);
  return none ? absolute : place;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  if (stream_of(a) != nullptr || stream_of(b) != nullptr) return stream_of(a) == stream_of(b);
  return place_of(a) == place_of(b) || std::filesystem::equivalent(a, b, none);
}

// A pipe without a reader would stop the run at its end, a full device waste it. /dev/fd/N is one that the
// caller has open: >(gzip) of a shell.
void check_target(const Target& target) {
  if (stream_of(target.file) != nullptr) return;
  std::error_code none;
  const auto status = std::filesystem::status(target.file, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    if (target.file == "/dev/null" || target.file.starts_with("/dev/fd/")) return;
    throw Error("{} {}: is no regular file; expected one to replace, a new one, or - for standard output",
                target.option, target.file);
  }
  try {
    check_can_write_whole(target.file);
  } catch (const Error& problem) {
    throw Error("{} {}", target.option, problem.what());
  }
}

}  // namespace

bool is_below(const std::string& file, const std::string& folder) {
  std::error_code none;
  const std::filesystem::path root = std::filesystem::canonical(folder, none);
  if (none || !std::filesystem::is_directory(root, none)) return false;
  const std::filesystem::path below = place_of(file).lexically_relative(root);
  return !below.empty() && below != "." && *below.begin() != "..";
}

void check_outputs(const OutputOptions& options, const std::vector<std::string>& inputs) {
  const auto targets = targets_of(options);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::string_view option = targets[i].option;
    const std::string& file = targets[i].file;
    if (file.empty()) continue;
    for (std::size_t k = 0; k < i; ++k) {
      if (!targets[k].file.empty() && same_file(file, targets[k].file)) {
        throw Error("{} and {} both write to '{}'; expected a file each", targets[k].option, option, file);
      }
    }
    for (const std::string& input : inputs) {
      if (same_file(file, input)) throw Error("{} {}: is an input; expected another file", option, file);
      if (is_below(file, input))
        throw Error(
            "{} {}: lies in the input {}, and would be read as part of it the next time; expected a "
            "place outside of it",
            option, file, input);
    }
    check_target(targets[i]);
  }
}

bool takes_stdout(const OutputOptions& options) {
  return std::ranges::any_of(targets_of(options), [](const Target& target) {
    return !target.file.empty() && stream_of(target.file) == stdout;
  });
}

void write_reports(const ReportTexts& texts, const OutputOptions& options) {
  std::vector<std::string> written;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a write that fails, and is tidied up after
  std::exception_ptr trouble;     // the verdict is shown, whatever becomes of the files
  for (const Target& target : targets_of(options)) {
    if (target.file.empty()) continue;
    try {
      write_text(target.file, (texts.*target.text)());
      if (stream_of(target.file) == nullptr) written.push_back(target.file);
    } catch (const Error&) {
      if (!trouble) trouble = std::current_exception();
    }
  }
  const bool is_taken = takes_stdout(options);
  if (!is_taken) write_text("-", texts.terminal(written));
  if (is_for_github(options)) tell_github(texts, options, is_taken ? stderr : stdout);
  if (trouble) std::rethrow_exception(trouble);
}

int write_report(Report report, const OutputOptions& options, const std::string& before) {
  report.command = options.command;
  TextStyle style;
  style.color = use_color(options.color);
  style.all = options.all;
  const auto as = [&](std::string (*write)(const Report&)) {
    return [&report, write] { return write(report); };
  };
  write_reports({.json = as(to_json),
                 .jsonl = as(to_jsonl),
                 .csv = as(to_csv),
                 .html = as(to_html),
                 .junit = as(to_junit),
                 .markdown = as(to_markdown),
                 .github = as(to_github_annotations),
                 .terminal =
                     [&](const std::vector<std::string>& written) {
                       style.written = written;
                       return before + to_text(report, style);
                     }},
                options);
  return report.exit_status();
}

int error_maps(const OutputOptions& options) {
  return options.html.empty() ? 0 : most_error_maps;
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

std::optional<DType> parse_dtype_option(std::string_view option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::optional<DType> dtype = parse_dtype(text);
  if (!dtype || (option == "--intermediate" && !is_float(*dtype))) {
    throw Error("{} {}: is no dtype for it; expected a torch name such as bfloat16", option, text);
  }
  return dtype;
}

OpenOptions open_options(const std::string& dtype_hint, const std::string& raw) {
  OpenOptions options;
  options.dtype_hint = parse_dtype_option("--dtype-hint", dtype_hint);
  if (raw.empty()) return options;
  try {
    options.raw = parse_raw(raw);
  } catch (const Error& problem) {
    throw Error("--raw {}", problem.what());
  }
  return options;
}

}  // namespace assay
