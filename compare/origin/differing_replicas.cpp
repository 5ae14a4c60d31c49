#include "assay/compare/origin/differing_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace assay {

DifferingReplicas::DifferingReplicas(const std::vector<Finding>& findings, const Inputs& inputs)
    : findings_(findings), inputs_(inputs) {
  for (const Finding& f : findings) differ_.push_back(f.verdict == Verdict::replicas_differ);
}

std::size_t DifferingReplicas::first_of(const std::vector<std::size_t>& all) const {
  const auto first = std::ranges::find_if(all, [&](std::size_t k) { return differ_[k]; });
  return first == all.end() ? OpenFailures::none : *first;
}

Decision DifferingReplicas::origin_of(std::size_t i, const std::vector<std::size_t>& direct) const {
  const Identity& id = findings_[i].id;
  std::vector<std::size_t> inputs = direct;
  std::ranges::copy(inputs_.of_call(i), std::back_inserter(inputs));
  if (const std::size_t from = first_of(inputs); from != OpenFailures::none)
    return Inherited{from, fmt::format("replicas of {} differ already", findings_[from].name)};
  if (inputs_.is_initial(id)) return made_anywhere("a parameter as it was before the run; nothing made it");
  if (inputs_.hold_data(i, inputs))
    return created_here(fmt::format("the replicas of its inputs agree ({})",
                                    inputs_.names(direct.empty() ? inputs : direct)));
  std::size_t from = open_.inside(id);
  if (from == OpenFailures::none) from = open_.before(id);
  if (from == OpenFailures::none) return created_here("no replicas before it differ");
  return Inherited{
      from, fmt::format("runs after {}, whose replicas differ; what it was computed from was not recorded",
                        findings_[from].name)};
}

std::size_t DifferingReplicas::behind_step(std::size_t i, const std::vector<std::size_t>& inputs) const {
  if (const std::size_t input = first_of(inputs); input != OpenFailures::none) return input;
  const std::size_t gradients = open_.before(findings_[i].id);
  const auto is_norm = [](const Diagnosis& d) { return d.cause == Cause::clip || d.cause == Cause::norm; };
  const bool clips_apart = gradients != OpenFailures::none &&
                           findings_[gradients].id.step == findings_[i].id.step &&
                           std::ranges::any_of(findings_[i].diagnoses, is_norm);
  return clips_apart ? gradients : OpenFailures::none;
}

void DifferingReplicas::add(std::size_t i) {
  if (differ_[i]) open_.add(i, findings_[i].id, is_result(findings_[i].id));
}

}  // namespace assay
