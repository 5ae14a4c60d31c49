#include "assay/compare/causes/open_failures.h"

#include <algorithm>

namespace assay {

OpenFailures::Pass OpenFailures::pass_of(const Identity& id) {
  return {id.step, std::max<std::int64_t>(id.micro_batch, -1)};
}

void OpenFailures::add(std::size_t i, const Identity& id, bool is_result) {
  for (Last* last : {&by_step_[id.step], &by_pass_[pass_of(id)]}) {
    last->any = i;
    if (id.phase == Phase::forward) last->forward = i;
  }
  if (!is_result) return;
  const std::string_view module = id.module;
  if (!module.empty()) by_ancestor_[{pass_of(id), module.substr(0, 0)}] = i;  // the model
  for (std::size_t dot = module.find('.'); dot != module.npos; dot = module.find('.', dot + 1))
    by_ancestor_[{pass_of(id), module.substr(0, dot)}] = i;
}

std::size_t OpenFailures::inside(const Identity& id) const {
  const auto found = by_ancestor_.find({pass_of(id), id.module});
  return found == by_ancestor_.end() ? none : found->second;
}

std::size_t OpenFailures::before(const Identity& id) const {
  const auto step = by_step_.lower_bound(id.step);
  if (step != by_step_.end() && step->first == id.step) {
    const auto member = id.phase == Phase::forward ? &Last::forward : &Last::any;
    std::size_t last = none;
    if (id.micro_batch < 0) last = step->second.*member;
    for (const std::int64_t micro_batch : {std::int64_t{-1}, id.micro_batch}) {
      const auto found = by_pass_.find({id.step, micro_batch});
      const std::size_t at = found == by_pass_.end() ? none : found->second.*member;
      if (at != none && (last == none || at > last)) last = at;
    }
    if (last != none) return last;
  }
  return step == by_step_.begin() ? none : std::prev(step)->second.any;
}

}  // namespace assay
