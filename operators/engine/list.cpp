#include "assay/operators/engine/list.h"

#include <algorithm>
#include <map>
#include <string>

#include "assay/golden/error.h"

namespace assay {

std::span<const Operator* const> operators() {
#define ASSAY_OPERATOR(name) &ops::name,
  static constexpr const Operator* list[] = {
#include "assay/operators/engine/operator_names.h"
  };
#undef ASSAY_OPERATOR
  return list;
}

namespace {

// Levenshtein distance, for suggestions.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

const Operator* known_operator(std::string_view name) {
  // Of two operators with one alias the first has it.
  static const std::map<std::string_view, const Operator*> by_name = [] {
    std::map<std::string_view, const Operator*> found;
    for (const Operator* op : operators()) {
      found.emplace(op->name, op);
      for (const std::string_view alias : op->aliases) found.emplace(alias, op);
    }
    return found;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

const Operator& find_operator(std::string_view name) {
  if (const Operator* op = known_operator(name)) return *op;
  const Operator* nearest = *std::ranges::min_element(
      operators(), {}, [&](const Operator* op) { return distance(op->name, name); });
  throw Error("there is no operator '{}'; did you mean '{}'? 'assay ops' lists them all", name,
              nearest->name);
}

}  // namespace assay
