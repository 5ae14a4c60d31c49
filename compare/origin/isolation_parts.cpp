#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/origin/decision.h"
#include "assay/compare/origin/isolation.h"
#include "assay/compare/origin/wholes.h"

namespace assay {

// What is inside of a whole is settled by its results.
void Isolation::take_parts() {
  const Wholes wholes(findings_, pairs_, local_.reference_calls());
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    Finding& f = findings_[i];
    const bool is_lone = pairs_[i].actual == nullptr || pairs_[i].reference == nullptr;
    const bool is_open = !steps_.contains(i) && !results_.contains(i) && !flows_.contains(i);
    const bool has_other_shape = f.verdict == Verdict::not_comparable;
    if (!is_lone && !has_other_shape && (is_certain_[i] || !(is_open || is_off(f)))) continue;
    const auto are_settled = [&](const std::vector<std::size_t>& results) {
      return !results.empty() && std::ranges::all_of(results, [&](std::size_t k) {
        return pairs_[k].actual != nullptr && pairs_[k].reference != nullptr &&
               (is_certain_[k] || is_right(k));
      });
    };
    std::vector<std::size_t> results = wholes.results_around(f.id);
    if (!are_settled(results) && is_lone) {
      const auto of_call = wholes.results_of(f.id);
      // A result may go by another name on the other side, unless its operator is known or all of that side's
      // have met by their names.
      const auto has_own_name = [&](std::size_t k) {
        const LogicalTensor& actual = *pairs_[k].actual;
        return local_.sides().actual.records[actual.records.front()].id == actual.id;
      };
      const auto is_known = [&](std::size_t k) {
        return local_.reference_calls().operator_of(*pairs_[k].reference) != nullptr;
      };
      const bool may_leave_out = f.id.slot == "input" || std::ranges::all_of(of_call, is_known) ||
                                 (std::ranges::all_of(of_call, has_own_name) &&
                                  !wholes.has_lone_result(f.id, pairs_[i].actual == nullptr));
      if (may_leave_out && are_settled(of_call)) results = of_call;
      // With a result goes its gradient.
      const auto result = f.id.slot == "grad_output"
                              ? inputs_->find(at(value_of(f.id), f.id.step, f.id.micro_batch))
                              : std::nullopt;
      const auto left_out = result ? parts_.find(*result) : parts_.end();
      if (left_out != parts_.end()) results = left_out->second;
    }
    const LogicalTensor* own = pairs_[i].reference != nullptr ? pairs_[i].reference : pairs_[i].actual;
    // Functions that its module calls itself are in no module.
    if (!are_settled(results) && own->within && (is_lone || has_other_shape))
      results = wholes.results_in(f.id);
    if (!are_settled(results) && is_lone && unplaced_.contains(f.id)) {
      const auto around = wholes.results_of_containers(f.id);
      if (const auto right = std::ranges::find_if(around, are_settled); right != around.end())
        results = *right;
    }
    if (!are_settled(results)) {
      take_cause_of_whole(f, results);
      continue;
    }
    parts_.emplace(i, std::move(results));
    if (f.unjudged.empty()) continue;
    f.unjudged.clear();
    --unjudged_;
    ++judged_;
    if (first_unjudged_ == i) first_unjudged_.reset();
  }
  for (std::size_t i = 0; i < pairs_.size() && !first_unjudged_; ++i) {
    if (!findings_[i].unjudged.empty()) first_unjudged_ = i;
  }
}

// What is wrong inside of a whole is so by the mistake that makes its results.
void Isolation::take_cause_of_whole(Finding& f, const std::vector<std::size_t>& results) const {
  for (const std::size_t k : f.diagnoses.empty() ? results : std::vector<std::size_t>()) {
    const auto judged = results_.find(k);
    if (judged == results_.end() || judged->second.diagnoses.empty()) continue;
    f.diagnoses.push_back(judged->second.diagnoses.front());
    f.diagnoses.back().parameters.whole = findings_[k].name;
    return;
  }
}

std::optional<Exemption> Isolation::part_of_right(std::size_t i) const {
  const auto whole = parts_.find(i);
  if (whole == parts_.end()) return {};
  return Exemption{Exemption::Kind::part_of_whole, 0, 1,
                   fmt::format("{}, in which it is, makes its results of what it was given",
                               findings_[whole->second.front()].id.module)};
}

bool Isolation::is_part_of_passed(std::size_t i) const {
  const auto whole = parts_.find(i);
  return whole != parts_.end() &&
         std::ranges::all_of(whole->second, [&](std::size_t k) { return is_fine(findings_[k].verdict); });
}

}  // namespace assay
