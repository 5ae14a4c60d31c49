#include "assay/compare/origin/isolation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "assay/compare/result/printable.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// End to end it may have passed.
void fail(Finding& f, const std::string& why) {
  const bool is_off = f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
                      f.verdict == Verdict::inherited || f.verdict == Verdict::exempt;
  if (f.verdict == Verdict::passed)
    f.reason = fmt::format("the end-to-end tolerance passes, but {}", why);
  else if (!is_off)
    f.reason = fmt::format("{}; end to end it is {}{}", why, name(f.verdict),
                           f.reason.empty() ? "" : ": " + f.reason);
  if (f.verdict != Verdict::replicas_differ) f.verdict = Verdict::failed;
}

}  // namespace

Isolation::Isolation(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                     const StepOrigins& steps, LocalErrors& local)
    : findings_(findings),
      pairs_(pairs),
      steps_(steps),
      local_(local),
      flow_(sides, local.actual_calls(), local.reference_calls(), local.judge(), local.fitted()),
      is_certain_(findings.size()),
      unsettled_(findings.size()) {}

void Isolation::judge_all() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) judge(i);
  settle();
}

void Isolation::judge(std::size_t i) {
  Finding& f = findings_[i];
  const Pair& pair = pairs_[i];
  is_certain_[i] = pair.actual == nullptr || f.verdict == Verdict::ignored;
  if (is_certain_[i]) return;
  bool is_judged = steps_.contains(i);
  if (f.verdict != Verdict::unreadable) {
    std::optional<Flow::Judgement> judgement;
    const auto trouble = trouble_in([&] { judgement = flow_.judge(pair.reference, *pair.actual); });
    if (trouble) {
      f.notes.push_back(fmt::format("not compared with what it is made of: {}", *trouble));
    } else if (judgement) {
      is_judged = true;
      if (!judgement->wrong.empty()) fail(f, judgement->wrong);
      flows_[i] = std::move(*judgement);
    }
  }
  const bool has_bits = f.metrics && f.metrics->different_bits == 0;
  // A choice that is the reference's may have been pinned to it, whatever the own scores say.
  const bool is_given = has_bits && !is_float(f.actual_dtype);
  if (is_given) {
    is_judged = is_judged || is_result(f.id);
  } else if (is_result(f.id)) {
    if (auto judgement = local_.judge(f, pair)) {
      is_judged = true;
      if (!(judgement->ratio <= 1))
        fail(f,
             fmt::format("the operator is wrong on its own recorded inputs{}",
                         judgement->diagnoses.empty() ? "" : ": " + sentence(judgement->diagnoses.front())));
      results_[i] = std::move(*judgement);
    }
  }
  const bool is_source = !is_judged && pair.reference != nullptr && made_of(i).empty() &&
                         (has_bits || (f.metrics && flow_.is_same(*pair.reference, *pair.actual)));
  if (is_judged)
    ++judged_;
  else if (is_source)
    ++sources_;
  else if (++unjudged_; !first_unjudged_)
    first_unjudged_ = i;
  is_certain_[i] = has_bits || is_source;
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
      if (states[i] == State::done || is_certain_[i] || !is_right(i)) {
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
  if (const auto step = steps_.find(i); step != steps_.end()) return step->second.is_right();
  if (const auto judged = results_.find(i); judged != results_.end())
    return judged->second.ratio <= 1 && judged->second.is_whole;
  const auto flow = flows_.find(i);
  return flow != flows_.end() && flow->second.wrong.empty();
}

std::vector<std::size_t> Isolation::made_of(std::size_t i) const {
  std::vector<std::size_t> sources = inputs_->of(i);
  if (results_.contains(i)) std::ranges::copy(inputs_->given_to_call(i), std::back_inserter(sources));
  return sources;
}

const LocalErrors::Judgement* Isolation::result(std::size_t i) const {
  const auto found = results_.find(i);
  return found == results_.end() ? nullptr : &found->second;
}

const std::string* Isolation::broken(std::size_t i) const {
  const auto found = flows_.find(i);
  return found == flows_.end() || found->second.wrong.empty() ? nullptr : &found->second.wrong;
}

std::optional<Exemption> Isolation::right_by_flow(std::size_t i) const {
  const auto found = flows_.find(i);
  if (found == flows_.end() || !found->second.wrong.empty()) return {};
  return Exemption{Exemption::Kind::amplified_rounding, found->second.ratio, 1,
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

std::string Isolation::coverage() const {
  const LocalErrors::Unjudged& u = local_.unjudged();
  std::string text =
      fmt::format("{} of {} tensors judged by what they were made of; {} are sources", grouped(judged_),
                  grouped(judged_ + sources_ + unjudged_), grouped(sources_));
  if (unjudged_ > 0)
    text +=
        fmt::format("; {} are not judged, first {}", grouped(unjudged_), findings_[*first_unjudged_].name);
  for (const auto& [count, why] :
       {std::pair(u.no_fit, "are of calls whose attributes the reference does not show"),
        {u.unreadable, "are of calls with a tensor that cannot be read"},
        {u.no_budget, "were left out, as enough was replayed before them"}}) {
    if (count > 0) text += fmt::format("; {} {}", grouped(count), why);
  }
  return text;
}

}  // namespace assay
