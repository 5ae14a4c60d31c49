#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "assay/compare/result/printable.h"
#include "assay/dumps/io/whole_file.h"
#include "assay/golden/error.h"
#include "github.h"
#include "terminal.h"

namespace assay {

void add_report(Options& options, ReportFile& file, const std::string& help) {
  options.option(fmt::format("--{}", file.format), file.path, help).holds("F").not_repeated();
}

void add_github(Options& options, OutputOptions& o) {
  const Option& github =
      options
          .flag("--github", o.github,
                "annotations on the log and the step summary; default in a GitHub workflow")
          .not_repeated();
  options.flag("--no-github", o.no_github, "none of these").excludes(github).not_repeated();
}

void add_output(Options& options, OutputOptions& o) {
  add_reports(options, o, report_formats());
  options.option("--color", o.color, "auto, always or never")
      .one_of({"auto", "always", "never"})
      .not_repeated();
  options.flag("-v,--all", o.all, "show every finding, none folded").not_repeated();
}

std::string sentence(const std::exception& problem) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&problem) != nullptr ||
                         dynamic_cast<const std::length_error*>(&problem) != nullptr;
  return is_memory
             ? "the tensors of this call do not fit into memory; expected smaller extents or more memory"
             : problem.what();
}

int trouble(const std::exception& problem) {
  fmt::print(stderr, "assay: {}\n", printable(sentence(problem)));
  return 2;
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

std::string option_of(const ReportFile& file) {
  return fmt::format("--{}", file.format);
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
void check_file(const ReportFile& file) {
  if (stream_of(file.path) != nullptr) return;
  std::error_code none;
  const auto status = std::filesystem::status(file.path, none);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    if (file.path == "/dev/null" || file.path.starts_with("/dev/fd/")) return;
    throw Error("{} {}: is no regular file; expected one to replace, a new one, or - for standard output",
                option_of(file), file.path);
  }
  try {
    check_can_write_whole(file.path);
  } catch (const Error& problem) {
    throw Error("{} {}", option_of(file), problem.what());
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
  const std::vector<ReportFile>& files = options.files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string option = option_of(files[i]);
    const std::string& path = files[i].path;
    if (path.empty()) continue;
    for (std::size_t k = 0; k < i; ++k) {
      if (!files[k].path.empty() && same_file(path, files[k].path)) {
        throw Error("{} and {} both write to '{}'; expected a file each", option_of(files[k]), option, path);
      }
    }
    for (const std::string& input : inputs) {
      if (same_file(path, input)) throw Error("{} {}: is an input; expected another file", option, path);
      if (is_below(path, input))
        throw Error(
            "{} {}: lies in the input {}, and would be read as part of it the next time; expected a "
            "place outside of it",
            option, path, input);
    }
    check_file(files[i]);
  }
}

bool takes_stdout(const OutputOptions& options) {
  return std::ranges::any_of(options.files, [](const ReportFile& file) {
    return !file.path.empty() && stream_of(file.path) == stdout;
  });
}

void write_reports(const ReportTexts& texts, const OutputOptions& options) {
  std::vector<std::string> written;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a write that fails, and is tidied up after
  std::exception_ptr trouble;     // the verdict is shown, whatever becomes of the files
  for (const ReportFile& file : options.files) {
    if (file.path.empty()) continue;
    try {
      write_text(file.path, texts.formats.at(file.format)());
      if (stream_of(file.path) == nullptr) written.push_back(file.path);
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
  write_reports({.formats = texts_of(report_formats(), report),
                 .github = [&] { return to_github_annotations(report); },
                 .terminal =
                     [&](const std::vector<std::string>& written) {
                       style.written = written;
                       return before + to_text(report, style);
                     }},
                options);
  return report.exit_status();
}

int error_maps(const OutputOptions& options) {
  const bool are_shown = std::ranges::any_of(
      options.files, [](const ReportFile& file) { return file.shows_error_maps && !file.path.empty(); });
  return are_shown ? most_error_maps : 0;
}

}  // namespace assay
