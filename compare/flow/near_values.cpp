// Which of the values before a tensor come into question for it, the nearest first.
#include <algorithm>
#include <set>
#include <span>

#include "assay/compare/flow/earlier_values.h"

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

}  // namespace assay
