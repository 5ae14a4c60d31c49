#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace assay {

enum class LogLevel : std::uint8_t { trace, debug, info, warn, error, off };
/// "trace", "debug", "info", "warn", "error", "off".
std::string_view name(LogLevel);
std::optional<LogLevel> parse_log_level(std::string_view);

struct LogLine {
  LogLevel level = LogLevel::info;
  std::string_view rank, stage;  ///< "-": the line belongs to none
  std::string_view message;
};

/// A place where lines go. Several threads may write at once.
class LogWriter {
 public:
  virtual ~LogWriter() = default;
  virtual bool takes(LogLevel) const = 0;
  virtual void write(const LogLine&) = 0;
};

/// What a library tells its caller while it works. The caller gives the writer; without one the log is
/// silent.
class Log {
 public:
  Log() = default;
  explicit Log(std::shared_ptr<LogWriter> writer) : writer_(std::move(writer)) {}

  /// The same log, whose lines name this rank.
  Log of_rank(int rank) const;
  /// The same log, whose lines name this stage of an alignment: "tp-sp".
  Log of_stage(std::string stage) const;

  bool takes(LogLevel level) const { return writer_ != nullptr && writer_->takes(level); }
  template <class... T>
  void trace(fmt::format_string<T...> text, T&&... values) const {
    write(LogLevel::trace, text, fmt::make_format_args(values...));
  }
  template <class... T>
  void debug(fmt::format_string<T...> text, T&&... values) const {
    write(LogLevel::debug, text, fmt::make_format_args(values...));
  }
  template <class... T>
  void info(fmt::format_string<T...> text, T&&... values) const {
    write(LogLevel::info, text, fmt::make_format_args(values...));
  }
  template <class... T>
  void warn(fmt::format_string<T...> text, T&&... values) const {
    write(LogLevel::warn, text, fmt::make_format_args(values...));
  }

 private:
  void write(LogLevel, fmt::string_view text, fmt::format_args values) const;

  std::shared_ptr<LogWriter> writer_;
  std::string rank_ = "-", stage_ = "-";
};

}  // namespace assay
