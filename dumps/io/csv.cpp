#include "assay/dumps/io/csv.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay {

bool CsvRows::next(std::vector<std::string>& cells) {
  cells.clear();
  while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) next_line_ += text_[at_++] == '\n';
  if (at_ == text_.size()) return false;
  line_ = next_line_;
  while (true) {
    cells.push_back(cell());
    if (at_ == text_.size() || text_[at_] != ',') return true;
    ++at_;
  }
}

std::string CsvRows::cell() {
  std::string cell;
  if (at_ == text_.size() || text_[at_] != '"') {
    const std::size_t end = std::min(text_.find_first_of(",\r\n\"", at_), text_.size());
    if (end < text_.size() && text_[end] == '"') throw Error("line {}: a quote inside a cell", line_);
    cell = text_.substr(at_, end - at_);
    at_ = end;
    return cell;
  }
  while (true) {
    const std::size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) throw Error("line {}: a quote that is not closed", line_);
    const std::string_view part = text_.substr(at_ + 1, end - at_ - 1);
    next_line_ += static_cast<std::size_t>(std::ranges::count(part, '\n'));
    cell.append(part);
    at_ = end + 1;
    if (at_ == text_.size() || text_[at_] != '"') break;
    cell.push_back('"');
  }
  if (at_ < text_.size() && std::string_view(",\r\n").find(text_[at_]) == std::string_view::npos)
    throw Error("line {}: text behind a closed quote", line_);
  return cell;
}

}  // namespace assay
