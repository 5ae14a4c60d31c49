#include "assay/golden/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace assay {
namespace {

constexpr std::array<std::string_view, 6> level_names = {"trace", "debug", "info", "warn", "error", "off"};

}  // namespace

std::string_view name(LogLevel level) {
  return level_names[static_cast<std::size_t>(level)];
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  const auto at = std::ranges::find(level_names, text);
  if (at == level_names.end()) return std::nullopt;
  return static_cast<LogLevel>(at - level_names.begin());
}

Log Log::of_rank(int rank) const {
  Log log = *this;
  log.rank_ = fmt::format("{}", rank);
  return log;
}

Log Log::of_stage(std::string stage) const {
  Log log = *this;
  log.stage_ = std::move(stage);
  return log;
}

void Log::write(LogLevel level, fmt::string_view text, fmt::format_args values) const {
  if (!takes(level)) return;
  const std::string message = fmt::vformat(text, values);
  writer_->write({level, rank_, stage_, message});
}

}  // namespace assay
