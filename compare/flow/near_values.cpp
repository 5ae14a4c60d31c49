// Which of the values before a tensor come into question for it, the nearest first.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "assay/compare/flow/earlier_values.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/golden/evidence.h"

namespace assay {

// -1: it is not known there. Inner modules first; what another module keeps to itself last.
int EarlierValues::rank(std::size_t candidate, const LogicalTensor& target) const {
  const EarlierValue& c = candidates_[candidate];
  const bool inside =
      is_within(target.id.module, c.scope) || (target.id.slot == "output" && target.id.module == c.scope);
  if (!inside) return c.is_inner ? -1 : 0;
  return 1 + static_cast<int>(std::ranges::count(c.scope, '.')) + (c.scope.empty() ? 0 : 1);
}

// Those in which rank() is at least 1, by falling rank.
std::vector<std::string_view> EarlierValues::scopes_around(const LogicalTensor& t) {
  const std::string_view module = t.id.module;
  std::vector<std::string_view> scopes;
  if (t.id.slot == "output" && !module.empty()) scopes.push_back(module);
  for (std::size_t dot = module.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = module.rfind('.', dot - 1))
    scopes.push_back(module.substr(0, dot));
  scopes.emplace_back();
  return scopes;
}

// Inner modules first, the latest first.
void EarlierValues::for_each_near(const LogicalTensor& t, const Takes& takes,
                                  const std::function<bool(std::size_t)>& f) const {
  // What a module was given is there under the name that it has within, and under that it has around it.
  std::set<const LogicalTensor*> seen;
  for (const std::string_view scope : scopes_around(t)) {
    const auto kinds = by_scope_.find(scope);
    if (kinds == by_scope_.end()) continue;
    std::vector<std::span<const std::size_t>> left;
    for (const auto& [kind, all] : kinds->second) {
      if (takes(kind)) left.emplace_back(all);
    }
    while (!left.empty()) {
      const auto latest =
          std::ranges::max_element(left, {}, [](std::span<const std::size_t> own) { return own.back(); });
      const std::size_t c = latest->back();
      *latest = latest->first(latest->size() - 1);
      if (latest->empty()) left.erase(latest);
      if (seen.insert(candidates_[c].tensor).second && !f(c)) return;
    }
  }
}

bool EarlierValues::is_any_near(const LogicalTensor& t, const Takes& takes) const {
  return std::ranges::any_of(scopes_around(t), [&](std::string_view scope) {
    const auto kinds = by_scope_.find(scope);
    return kinds != by_scope_.end() &&
           std::ranges::any_of(kinds->second, [&](const auto& kind) { return takes(kind.first); });
  });
}

std::optional<std::size_t> EarlierValues::find(const LogicalTensor& t) const {
  const auto found = outputs_.find(&t);
  return found == outputs_.end() ? std::nullopt : std::optional(found->second);
}

// One number may be another one by accident: all of that name are, in all micro-batches, and so are their
// gradients, unless the source has other uses.
bool EarlierValues::is_the_number(const LogicalTensor& t, const Name& source, std::size_t tried) const {
  std::set<double> numbers, gradients;
  bool have_one_gradient = true;
  for (const LogicalTensor* own : side_.named(name_of(t.id))) {
    const LogicalTensor* other = side_.find(at(record_of(source), own->id.step, own->id.micro_batch));
    if (other == nullptr) return false;
    const double number = side_.read(*own)->values.front();
    if (number != round_to(own->dtype, side_.read(*other)->values.front())) return false;
    numbers.insert(number);
    const LogicalTensor *of_own = side_.find(gradient_of(name_of(t.id), own->id)),
                        *of_source = side_.find(gradient_of(record_of(source), own->id));
    have_one_gradient = have_one_gradient && of_own != nullptr && of_source != nullptr &&
                        side_.read(*of_own)->values == side_.read(*of_source)->values;
    if (have_one_gradient) gradients.insert(side_.read(*of_own)->values.front());
  }
  const double shown = static_cast<double>(numbers.size() + (have_one_gradient ? gradients.size() : 0)),
               bits = -std::log2(unit_roundoff(t.dtype)) * shown;
  return bits >= hint_bits + std::log2(static_cast<double>(tried));
}

}  // namespace assay
