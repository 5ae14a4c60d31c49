#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

#include "assay/compare/result/printable.h"

namespace assay {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool is_dumb_terminal() {
  const char* term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) == "dumb";
}

// Five updates a second are smooth to the eye and cost nothing.
constexpr auto update_interval = std::chrono::milliseconds(200);
constexpr std::size_t item_width = 36;  // so that the line stays within 80 columns

std::string amount(std::size_t done, std::size_t total, double seconds, Progress::Unit unit) {
  if (unit == Progress::Unit::items) return fmt::format("{} of {}", done, total);
  const bool is_large = total >= 10'000'000'000;
  const auto amount = [&](std::size_t bytes) { return static_cast<double>(bytes) / (is_large ? 1e9 : 1e6); };
  return fmt::format("{:.{}f} of {:.{}f} {}, {:.0f} MB/s", amount(done), is_large ? 1 : 0, amount(total),
                     is_large ? 1 : 0, is_large ? "GB" : "MB", static_cast<double>(done) / 1e6 / seconds);
}

constexpr std::string_view clear_line = "\r\x1b[K";

// Of standard error: lines of the log come from threads of their own.
std::mutex standard_error;
bool is_progress_shown = false;

}  // namespace

void write_above_progress(std::string_view lines) {
  const std::lock_guard lock(standard_error);
  std::string text(is_progress_shown ? clear_line : "");
  text += lines;
  is_progress_shown = false;
  std::fwrite(text.data(), 1, text.size(), stderr);  // unbuffered: one write, which no other process parts
}

bool use_color(const std::string& option) {
  if (option != "auto") return option == "always";
  if (is_set("NO_COLOR")) return false;
  if (is_set("FORCE_COLOR") || is_set("CLICOLOR_FORCE")) return true;
  return !is_dumb_terminal() && isatty(STDOUT_FILENO) != 0;
}

Progress::Progress(std::string what, Unit unit)
    : what_(std::move(what)),
      unit_(unit),
      enabled_(isatty(STDERR_FILENO) != 0 && !is_set("CI") && !is_dumb_terminal()) {
  start_ = last_ = std::chrono::steady_clock::now();
}

Progress::~Progress() {
  if (enabled_) write_above_progress("");
}

void Progress::show(std::size_t done, std::size_t total, const std::string& item) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || now - last_ < update_interval) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = done == 0 ? 0 : seconds * static_cast<double>(total - done) / static_cast<double>(done);
  const std::string name = printable(item);
  const std::lock_guard lock(standard_error);
  is_progress_shown = true;
  fmt::print(stderr, "{}{} {}, {:.0f} s left  {}", clear_line, what_, amount(done, total, seconds, unit_),
             left, name.size() <= item_width ? name : name.substr(0, item_width - 3) + "...");
  std::fflush(stderr);
}

}  // namespace assay
