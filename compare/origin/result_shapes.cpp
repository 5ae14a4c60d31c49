#include "assay/compare/origin/result_shapes.h"

#include <algorithm>

namespace assay {

void ResultShapes::read() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const Pair& pair = pairs_[i];
    if (pair.actual == nullptr || pair.reference == nullptr) continue;
    Shapes& shapes = by_name_[name_of(findings_[i].id)];
    shapes.actual.insert(pair.actual->shape);
    shapes.reference.insert(pair.reference->shape);
    ++shapes.pairs;
  }
}

bool ResultShapes::is_wrong(std::size_t i, const std::vector<std::size_t>& given) {
  if (findings_[i].verdict != Verdict::not_comparable) return false;
  if (by_name_.empty()) read();
  const auto found = by_name_.find(name_of(findings_[i].id));
  if (found == by_name_.end()) return false;
  const Shapes& all = found->second;
  if (all.pairs < 2 || all.actual.size() != 1 || all.actual == all.reference || all.reference.size() != 1)
    return false;
  const auto is_data = [&](std::size_t k) { return findings_[k].id.slot != "param"; };
  return std::ranges::any_of(given, is_data) && std::ranges::all_of(given, [&](std::size_t k) {
           const Pair& pair = pairs_[k];
           return pair.actual != nullptr && pair.reference != nullptr &&
                  pair.actual->shape == pair.reference->shape && is_float(pair.actual->dtype);
         });
}

}  // namespace assay
