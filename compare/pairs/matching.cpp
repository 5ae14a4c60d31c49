#include "assay/compare/pairs/matching.h"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <utility>

#include "assay/golden/error.h"

namespace assay {
namespace {

bool is_lone_array(const Dump& dump, const std::vector<LogicalTensor>& tensors) {
  return tensors.size() == 1 && tensors.front().id.slot.empty() &&
         tensors.front().id.module == dump.path.stem();
}

}  // namespace

std::string match_lone_arrays(const Dump& actual, std::vector<LogicalTensor>& actual_tensors,
                              const Dump& reference, const std::vector<LogicalTensor>& reference_tensors) {
  if (!is_lone_array(actual, actual_tensors) || !is_lone_array(reference, reference_tensors)) return "";
  Identity& id = actual_tensors.front().id;
  const Identity& other = reference_tensors.front().id;
  if (id == other) return "";
  std::string note =
      fmt::format("one tensor on each side: '{}' is compared with '{}'", to_string(id), to_string(other));
  id = other;
  return note;
}

std::vector<Pair> match(const std::vector<LogicalTensor>& actual,
                        const std::vector<LogicalTensor>& reference) {
  const auto less = [](const Identity* a, const Identity* b) { return *a < *b; };
  std::map<const Identity*, std::size_t, decltype(less)> by_id(less);
  for (std::size_t i = 0; i < reference.size(); ++i) by_id.emplace(&reference[i].id, i);
  std::vector<const LogicalTensor*> partner(reference.size(), nullptr);
  std::map<std::size_t, std::vector<const LogicalTensor*>> extra;  // by the position they follow
  std::size_t after = 0;
  for (const LogicalTensor& t : actual) {
    const auto found = by_id.find(&t.id);
    if (found == by_id.end()) {
      extra[after].push_back(&t);
      continue;
    }
    partner[found->second] = &t;
    after = found->second + 1;
  }
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i <= reference.size(); ++i) {
    if (const auto here = extra.find(i); here != extra.end()) {
      for (const LogicalTensor* t : here->second) pairs.push_back({t, nullptr});
    }
    if (i < reference.size()) pairs.push_back({partner[i], &reference[i]});
  }
  return pairs;
}

void take_operators(std::vector<LogicalTensor>& tensors, const Rules& rules) {
  if (!rules.has_operators()) return;
  for (LogicalTensor& t : tensors) {
    if (auto op = rules.operator_of(paths_of(t.id))) t.op = std::move(*op);
  }
}

double bytes_of(const Pair& pair) {
  if (pair.actual == nullptr || pair.reference == nullptr) return 0;
  double bytes = 0;
  for (const LogicalTensor* t : {pair.actual, pair.reference}) {
    bytes += static_cast<double>(element_count(t->shape)) * static_cast<double>(size_of(t->dtype)) *
             static_cast<double>(t->records.size());
  }
  return bytes;
}

}  // namespace assay
