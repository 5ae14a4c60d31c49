#include "assay/operators/engine/recorded.h"

namespace assay {

std::vector<double> seen_numbers(const Operator& op, std::string_view attribute) {
  std::vector<double> numbers;
  for (const Seen& row : op.seen) {
    if (row.attribute != attribute) continue;
    const AttributeValue value = parse_attribute(row.value);
    if (const double* number = std::get_if<double>(&value)) numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace assay
