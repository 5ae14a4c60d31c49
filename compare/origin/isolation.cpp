#include "assay/compare/origin/isolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"
#include "assay/dumps/layout/layout_rules.h"

namespace assay {

Isolation::Isolation(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                     const StepOrigins& steps, LocalErrors& local)
    : findings_(findings),
      pairs_(pairs),
      steps_(steps),
      local_(local),
      flow_(sides, local.actual_calls(), local.reference_calls(), local.judge(), local.fitted(),
            local.last_results()),
      shapes_(findings, pairs),
      is_certain_(findings.size()),
      unsettled_(findings.size()) {
  for (const Dump* dump : {&sides.actual, &sides.reference})
    for (const auto& [id, why] : why_unplaced(*dump)) unplaced_.insert(id);
  local_.take_scale_of_sums(flow_.scale_of_sums(true), flow_.scale_of_sums(false));
}

void Isolation::judge_all(const JudgingProgress& progress) {
  std::size_t ahead = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    for (ahead = std::max(ahead, i + 1); ahead < pairs_.size() && local_.looks_ahead(); ++ahead) {
      // What is not known yet may be so when its turn comes.
      if (is_called(ahead) && !local_.look_ahead(pairs_[ahead])) break;
    }
    if (progress) progress(i, pairs_.size(), findings_[i].name);
    judge(i);
    local_.forget(pairs_[i]);
  }
  take_parts();
  settle();
}

// A choice that is the reference's may have been pinned to it, whatever the own scores say.
bool Isolation::is_given(const Finding& f) {
  return f.has_equal_bits() && !is_float(f.actual_dtype);
}

// Whether a call that is judged makes it.
bool Isolation::is_called(std::size_t i) const {
  const Finding& f = findings_[i];
  return pairs_[i].actual != nullptr && f.verdict != Verdict::ignored && !is_given(f) &&
         !is_made_as_reference(i) &&
         (is_result(f.id) || local_.actual_calls().is_hidden_result(*pairs_[i].actual));
}

void Isolation::judge(std::size_t i) {
  Finding& f = findings_[i];
  const Pair& pair = pairs_[i];
  is_certain_[i] = pair.actual == nullptr || f.verdict == Verdict::ignored;
  if (is_certain_[i]) return;
  if (is_made_as_reference(i)) {
    ++judged_;
    is_certain_[i] = true;
    return;
  }
  if (is_result(f.id) && shapes_.is_wrong(i, inputs_->of_call(i))) {
    ++judged_;
    std::string wrong = "what it is made of has the reference's shapes, and it has another one";
    fail_by_inputs(f, wrong);
    flows_[i] = {.ratio = infinity, .wrong = std::move(wrong)};
    return;
  }
  const auto step = steps_.find(i);
  bool is_judged = step != steps_.end();
  if (is_judged && !step->second.root && !step->second.is_right())
    fail_by_inputs(f, fmt::format("the step is wrong on its own recorded inputs: error/allowed {:.3g}",
                                  step->second.ratio));
  const bool has_bits = f.has_equal_bits();
  // What a call in no module handed back would be judged by that call both times.
  const bool is_handed_back =
      is_called(i) && is_gradient(f.id) && local_.actual_calls().is_hidden_result(*pair.actual);
  if ((is_handed_back && judge_as_result(i)) || judge_by_flow(i)) is_judged = true;
  if (is_given(f))
    is_judged = is_judged || is_result(f.id);
  else if (is_called(i) && !is_handed_back && judge_as_result(i))
    is_judged = true;
  // A result is none, though nobody knows what it was made of.
  const bool is_source = !is_judged && !is_result(f.id) && pair.reference != nullptr && made_of(i).empty() &&
                         (has_bits || (f.metrics && flow_.is_same(*pair.reference, *pair.actual)));
  if (is_judged)
    ++judged_;
  else if (is_source)
    ++sources_;
  else
    leave_out(i);
  is_certain_[i] = has_bits || is_source;
}

bool Isolation::judge_by_flow(std::size_t i) {
  Finding& f = findings_[i];
  if (f.verdict == Verdict::unreadable) return false;
  std::optional<Flow::Judgement> judgement;
  const auto trouble = trouble_in(
      [&] { judgement = flow_.judge(pairs_[i].reference, *pairs_[i].actual, is_fine(f.verdict)); });
  f.is_choice = flow_.are_chosen_rows(f.id);
  if (trouble) f.notes.push_back(fmt::format("not compared with what it is made of: {}", *trouble));
  if (trouble || !judgement) return false;
  if (!judgement->wrong.empty()) fail_by_inputs(f, judgement->wrong);
  if (judgement->mistake) f.diagnoses.push_back(*judgement->mistake);
  if (judgement->right) right_[i] = *std::exchange(judgement->right, std::nullopt);
  flows_[i] = std::move(*judgement);
  return true;
}

bool Isolation::judge_as_result(std::size_t i) {
  Finding& f = findings_[i];
  auto judgement = local_.judge(f, pairs_[i]);
  if (!judgement) return false;
  if (!(judgement->ratio <= 1))
    fail_by_inputs(
        f, fmt::format("the operator is wrong on its own recorded inputs{}",
                       judgement->diagnoses.empty() ? "" : ": " + sentence(judgement->diagnoses.front())));
  if (judgement->right) right_[i] = *std::exchange(judgement->right, std::nullopt);
  results_[i] = std::move(*judgement);
  return true;
}

void Isolation::leave_out(std::size_t i) {
  ++unjudged_;
  if (!first_unjudged_) first_unjudged_ = i;
  findings_[i].unjudged = why_unjudged(i);
}

// Equal bits made of equal bits.
bool Isolation::is_made_as_reference(std::size_t i) const {
  const auto has_bits = [&](std::size_t k) { return findings_[k].has_equal_bits(); };
  if (!has_bits(i) || findings_[i].verdict == Verdict::replicas_differ) return false;
  std::vector<std::size_t> sources = inputs_->of(i);
  std::ranges::copy(inputs_->given_to_call(i), std::back_inserter(sources));
  return !sources.empty() && std::ranges::all_of(sources, has_bits);
}

// Sources first: an explicit stack, as a run is a chain of all its layers and steps.
void Isolation::settle() {
  enum class State : std::uint8_t { open, entered, done };
  std::vector<State> states(findings_.size(), State::open);
  std::vector<std::size_t> stack;
  for (std::size_t first = 0; first < findings_.size(); ++first) {
    stack.push_back(first);
    while (!stack.empty()) {
      const std::size_t i = stack.back();
      const bool is_certain = is_certain_[i] && !parts_.contains(i);
      if (states[i] == State::done || is_certain || !is_right(i)) {
        if (states[i] != State::done && !is_certain_[i]) unsettled_[i] = i;
        states[i] = State::done;
        stack.pop_back();
        continue;
      }
      const std::vector<std::size_t> sources = made_of(i);
      if (states[i] == State::open) {
        states[i] = State::entered;
        std::ranges::copy_if(sources, std::back_inserter(stack),
                             [&](std::size_t k) { return states[k] == State::open; });
        continue;
      }
      for (const std::size_t k : sources) {
        if (unsettled_[k] && (!unsettled_[i] || *unsettled_[k] < *unsettled_[i]))
          unsettled_[i] = unsettled_[k];
      }
      states[i] = State::done;
      stack.pop_back();
    }
  }
}

// By itself: judged, with one right value for each element.
bool Isolation::is_right(std::size_t i) const {
  if (parts_.contains(i)) return true;
  if (const auto step = steps_.find(i); step != steps_.end()) return step->second.is_right();
  if (const auto judged = results_.find(i); judged != results_.end())
    return judged->second.ratio <= 1 && judged->second.is_whole;
  const auto flow = flows_.find(i);
  return flow != flows_.end() && flow->second.wrong.empty();
}

std::vector<std::size_t> Isolation::made_of(std::size_t i) const {
  if (const auto whole = parts_.find(i); whole != parts_.end()) return whole->second;
  std::vector<std::size_t> sources = inputs_->of(i);
  if (results_.contains(i)) std::ranges::copy(inputs_->given_to_call(i), std::back_inserter(sources));
  return sources;
}

bool Isolation::follows_tie(std::size_t i) const {
  return std::ranges::any_of(made_of(i), [&](std::size_t k) {
    return findings_[k].exemption && findings_[k].exemption->kind == Exemption::Kind::legal_tie;
  });
}

std::optional<LocalErrors::Judgement> Isolation::result(std::size_t i) const {
  const auto found = results_.find(i);
  return found == results_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Isolation::broken(std::size_t i) const {
  const auto found = flows_.find(i);
  return found == flows_.end() || found->second.wrong.empty() ? nullptr : &found->second.wrong;
}

std::optional<Exemption> Isolation::right_by_flow(std::size_t i) const {
  const auto found = flows_.find(i);
  if (found == flows_.end() || !found->second.wrong.empty()) return {};
  return Exemption{
      found->second.is_reordered ? Exemption::Kind::legal_tie : Exemption::Kind::amplified_rounding,
      found->second.ratio, 1,
      fmt::format("{}: error/allowed {:.3g}", found->second.how, found->second.ratio)};
}

bool Isolation::is_absent_by_choice(std::size_t i) const {
  const bool lacks_actual = pairs_[i].actual == nullptr;
  if (!lacks_actual && pairs_[i].reference != nullptr) return false;
  const Identity& id = findings_[i].id;
  const auto condition = flow_.condition_of(id);
  if (!condition || flow_.chosen(lacks_actual, *condition, id) != false) return false;
  const auto index = inputs_->find(at(condition->index, id.step, id.micro_batch));
  return index && is_fine(findings_[*index].verdict);
}

bool Isolation::is_copy(std::size_t i) const {
  const auto found = flows_.find(i);
  return found != flows_.end() && found->second.is_copy && found->second.wrong.empty();
}

std::optional<std::size_t> Isolation::unsettled(std::size_t i) const {
  return unsettled_[i];
}

std::optional<Coverage> Isolation::coverage() const {
  const auto ran = [](const Finding& f) { return f.id.phase != Phase::none && is_result(f.id); };
  if (std::ranges::none_of(findings_, ran)) return {};
  const LocalErrors::Unjudged& u = local_.unjudged();
  Coverage c{judged_, sources_, unjudged_, {}};
  if (first_unjudged_)
    c.why_unjudged.push_back(
        fmt::format("first {}: {}", findings_[*first_unjudged_].name, why_unjudged(*first_unjudged_)));
  for (const auto& [count, why] :
       {std::pair(u.no_fit, "are of calls whose attributes the reference does not show"),
        {u.unreadable, "are of calls with a tensor that cannot be read"},
        {u.no_budget, "were left out, as enough was replayed before them"}}) {
    if (count > 0) c.why_unjudged.push_back(fmt::format("{} {}", grouped(count), why));
  }
  return c;
}

}  // namespace assay
