#include "assay/compare/calls/stated_accumulator.h"

#include <filesystem>

#include "assay/dumps/io/file.h"
#include "assay/dumps/io/json.h"
#include "assay/golden/accumulator.h"

namespace assay {

std::string stated_accumulator(const std::string& text_or_file) {
  std::string text = text_or_file;
  if (text.ends_with(".json")) {
    const Json order = parse_json(MappedFile::open(text_or_file)->text(), text_or_file);
    text = order.at("accumulator", text_or_file).string(text_or_file + ": accumulator") +
           ",order=" + order.at("order", text_or_file).string(text_or_file + ": order");
  }
  if (!text.empty()) parse_accumulator(text);
  return text;
}

}  // namespace assay
