#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// The rows of a CSV text: commas, quotes around cells that hold any of these, "" for a quote. RFC 4180.
class CsvRows {
 public:
  /// @param text  must outlive the reader
  explicit CsvRows(std::string_view text) : text_(text) {}
  /// The next row that is not empty; false at the end. Throws Error for a quote that is not closed or stands
  /// inside a cell without quotes.
  bool next(std::vector<std::string>& cells);
  /// Of the row that was read last, from 1.
  std::size_t line() const { return line_; }

 private:
  std::string cell();

  std::string_view text_;
  std::size_t at_ = 0, line_ = 0, next_line_ = 1;
};

}  // namespace assay
