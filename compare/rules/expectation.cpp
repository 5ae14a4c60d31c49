#include "assay/compare/rules/expectation.h"

#include <fmt/format.h>

namespace assay {

const Row* deciding_row(const Expectation& e) {
  if (e.count) return e.policy->find(e.row_dtype, *e.count);
  const auto rows = e.policy->rows_of(e.row_dtype);
  return rows.empty() ? nullptr : &rows.front();
}

std::string rule_text(const Expectation& e, const Row& row) {
  return to_string(*e.policy, row) +
         (e.count ? fmt::format(" (count {})", *e.count) : " (count unknown: strictest row)") +
         (e.row_reason.empty() ? "" : "; " + e.row_reason);
}

std::string no_row_text(const Expectation& e) {
  if (e.policy->rows_of(e.row_dtype).empty())
    return fmt::format("{} has no row for {}", e.policy->name, name(e.row_dtype));
  return fmt::format("{} has no row for an accumulation count of {}", e.policy->name, e.count.value_or(0));
}

std::string count_needed(const Row& looser) {
  return fmt::format("add a [[count]] rule: passes only with an accumulation count >= {}, which is unknown",
                     looser.count);
}

std::string bits_rule(const Expectation& e, DType actual) {
  if (!is_float(actual)) return "integers: every bit equal";
  if (e.policy->rule == Rule::bitwise) return "bitwise: every bit equal";
  return e.promises_bits ? e.bits_reason : "";
}

}  // namespace assay
