#include "log.h"

#include <fmt/format.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string_view>
#include <vector>

#include "assay/align/ranks/launched.h"
#include "assay/compare/result/printable.h"
#include "assay/golden/error.h"
#include "terminal.h"

namespace assay {
namespace {

constexpr std::size_t most_waiting = 8192;  // lines, spdlog's own default

spdlog::level::level_enum to_spdlog(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(level == LogLevel::off ? spdlog::level::off
                                                                       : static_cast<int>(level));
}
static_assert(static_cast<int>(LogLevel::error) == spdlog::level::err);

// The names that --log-level takes.
class LevelName : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& line, const std::tm&, spdlog::memory_buf_t& to) override {
    const std::string_view level = name(static_cast<LogLevel>(line.level));
    to.append(level.data(), level.data() + level.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelName>(); }
};

std::unique_ptr<spdlog::formatter> line_formatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %* %n %v");
  return formatter;
}

class StandardError : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& line) override {
    spdlog::memory_buf_t text;
    formatter_->format(line, text);
    write_above_progress({text.data(), text.size()});
  }
  void flush_() override {}
};

struct ProgramLog {
  std::string verb;
  std::vector<spdlog::sink_ptr> sinks;
  // Where ranks write: they do not wait for the disk, but for a place in the queue if they are faster than
  // it.
  std::shared_ptr<spdlog::details::thread_pool> writing_thread;
  Log log;
};
ProgramLog& opened() {
  static ProgramLog log;
  return log;
}

std::shared_ptr<spdlog::logger> logger_to(const std::vector<spdlog::sink_ptr>& sinks) {
  const auto& [verb, _, writing_thread, log] = opened();
  std::shared_ptr<spdlog::logger> logger;
  if (writing_thread != nullptr)
    logger = std::make_shared<spdlog::async_logger>(verb, sinks.begin(), sinks.end(), writing_thread);
  else
    logger = std::make_shared<spdlog::logger>(verb, sinks.begin(), sinks.end());
  auto level = spdlog::level::off;
  for (const auto& sink : sinks) level = std::min(level, sink->level());
  logger->set_level(level);
  logger->flush_on(spdlog::level::trace);
  logger->set_formatter(line_formatter());
  // A log that cannot be written, as on a full disk, is said once and changes no verdict.
  logger->set_error_handler([](const std::string& problem) {
    static std::atomic<bool> is_said = false;
    if (!is_said.exchange(true))
      write_above_progress(fmt::format("assay: a line of the log is lost: {}\n", printable(problem)));
  });
  return logger;
}

class SpdlogWriter : public LogWriter {
 public:
  explicit SpdlogWriter(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}
  bool takes(LogLevel level) const override { return logger_->should_log(to_spdlog(level)); }
  void write(const LogLine& line) override {
    logger_->log(to_spdlog(line.level), "{} {} {}", line.rank, line.stage, printable(line.message));
  }

 private:
  const std::shared_ptr<spdlog::logger> logger_;
};

// Lines are added: a tensor file named by mistake must not become longer.
void check_is_log(const std::filesystem::path& file) {
  std::error_code none;
  const auto status = std::filesystem::status(file, none);
  if (!std::filesystem::exists(status) || std::filesystem::is_character_file(status)) return;
  if (!std::filesystem::is_regular_file(status))
    throw Error("is no regular file; expected one, or a new one");
  if (std::filesystem::file_size(file, none) == 0) return;
  std::string begin(5, ' ');
  std::ifstream(file).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (!std::all_of(begin.begin(), begin.end() - 1, is_digit) || begin.back() != '-')
    throw Error("is there and is no log of assay; expected a new file, or the log of an earlier run");
}

spdlog::sink_ptr file_sink(const std::filesystem::path& file, LogLevel level) {
  check_is_log(file);
  // spdlog makes missing folders and does not say why a file cannot be opened.
  std::FILE* const opened = std::fopen(file.c_str(), "ab");
  if (opened == nullptr)
    throw Error("cannot be written ({}); expected a file in a folder that is there", std::strerror(errno));
  std::fclose(opened);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
  sink->set_level(to_spdlog(level));
  return sink;
}

LogLevel level_of(const LogOptions& options) {
  const char* variable = std::getenv("ASSAY_LOG");
  const bool is_option = !options.level.empty();
  const std::string text = is_option ? options.level : variable == nullptr ? "" : variable;
  if (text.empty()) return LogLevel::warn;
  const std::optional<LogLevel> level = parse_log_level(text);
  if (!level)
    throw Error("{} {}: is no level of the log; expected off, error, warn, info, debug or trace",
                is_option ? "--log-level" : "ASSAY_LOG", text);
  return *level;
}

Log log_to(const std::vector<spdlog::sink_ptr>& sinks) {
  return Log(std::make_shared<SpdlogWriter>(logger_to(sinks)));
}

}  // namespace

void open_log(const LogOptions& options, const std::string& verb) {
  const LogLevel level = level_of(options);
  ProgramLog& program = opened();
  program.verb = verb;
  if (verb == "align" || verb == "replay" || align::launched_processes() > 1)
    program.writing_thread = std::make_shared<spdlog::details::thread_pool>(most_waiting, 1);
  auto standard_error = std::make_shared<StandardError>();
  standard_error->set_level(to_spdlog(options.file.empty() ? level : std::max(level, LogLevel::warn)));
  program.sinks = {standard_error};
  if (!options.file.empty()) {
    try {
      program.sinks.push_back(file_sink(options.file, level));
    } catch (const Error& problem) {
      throw Error("--log-file {}: {}", options.file, problem.what());
    }
  }
  if (level != LogLevel::off) program.log = log_to(program.sinks);
}

const Log& program_log() {
  return opened().log;
}

Log with_log_file(const std::filesystem::path& file) {
  std::vector<spdlog::sink_ptr> sinks = opened().sinks;
  try {
    sinks.push_back(file_sink(file, LogLevel::debug));
  } catch (const Error& problem) {
    throw Error("{}: {}", file.string(), problem.what());
  }
  return log_to(sinks);
}

void close_log() {
  opened() = {};
}

}  // namespace assay
