#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace assay {

/// Whether standard output gets colour. --color decides; "auto" asks NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE,
/// TERM and whether it is a terminal, in this order (no-color.org, bixense.com/clicolors).
bool use_color(const std::string& option);

/// Lines for standard error in one piece. A line of progress is cleared before them; it comes back with its
/// next update.
void write_above_progress(std::string_view lines);

/// One line on standard error that says how far a long run is. Silent unless that is a terminal and CI is not
/// set.
class Progress {
 public:
  enum class Unit { items, bytes };  ///< of what is done: "12 of 40", "12.5 of 80.0 GB, 1900 MB/s"
  Progress(std::string what, Unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::size_t done, std::size_t total, const std::string& item);

 private:
  std::string what_;
  Unit unit_;
  bool enabled_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace assay
