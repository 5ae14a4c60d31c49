#include "assay/compare/result/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/result/printable.h"

namespace assay {

std::string_view name(Verdict v) {
  constexpr std::string_view names[verdict_count] = {"passed",
                                                     "exempt",
                                                     "failed",
                                                     "inherited",
                                                     "undecided",
                                                     "replicas differ",
                                                     "no rule",
                                                     "mistrusted",
                                                     "not comparable",
                                                     "statistics agree",
                                                     "agrees by sketch",
                                                     "missing actual",
                                                     "missing reference",
                                                     "unreadable",
                                                     "ignored"};
  return names[static_cast<std::size_t>(v)];
}

Allowed on_its_own_scale(const Finding& f) {
  if (!(f.rtol > 0) || !f.metrics) return {f.atol, f.rtol, {}};
  const Side& r = f.metrics->reference;
  return {std::min(f.atol, f.rtol * std::hypot(r.mean, r.std)), f.rtol, {}};
}

bool compared(Verdict v) {
  return v == Verdict::passed || v == Verdict::exempt || v == Verdict::failed || v == Verdict::inherited ||
         v == Verdict::undecided || v == Verdict::replicas_differ || v == Verdict::mistrusted;
}

bool is_fine(Verdict v) {
  return v == Verdict::passed || v == Verdict::exempt || v == Verdict::ignored;
}

std::string_view name(Origin::Kind kind) {
  constexpr std::string_view names[] = {"unknown", "created here", "inherited"};
  return names[static_cast<std::size_t>(kind)];
}

bool is_inherited(const Finding& f) {
  return f.origin && f.origin->kind == Origin::Kind::inherited;
}

void fail_by_inputs(Finding& f, const std::string& why) {
  const bool is_off = f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
                      f.verdict == Verdict::inherited || f.verdict == Verdict::exempt;
  if (f.verdict == Verdict::passed)
    f.reason = fmt::format("the end-to-end tolerance passes, but {}", why);
  else if (!is_off)
    f.reason = fmt::format("{}; end to end it is {}{}", why, name(f.verdict),
                           f.reason.empty() ? "" : ": " + f.reason);
  if (f.verdict != Verdict::replicas_differ) f.verdict = Verdict::failed;
}

bool is_judged(const Finding& f) {
  return f.metrics || !f.statistics.empty() || f.sketch;
}

std::string sentence(const Coverage& c) {
  std::string text =
      fmt::format("{} of {} tensors are judged by what they were made of, {} are sources", grouped(c.judged),
                  grouped(c.judged + c.sources + c.unjudged), grouped(c.sources));
  if (c.unjudged > 0) text += fmt::format(", {} are not judged", grouped(c.unjudged));
  for (const std::string& why : c.why_unjudged) text += "; " + why;
  return text;
}

std::int64_t Report::count(Verdict v) const {
  return std::ranges::count(findings, v, &Finding::verdict);
}

std::int64_t Report::compared() const {
  return std::ranges::count_if(findings, [](const Finding& f) { return assay::compared(f.verdict); });
}

bool Report::compared_nothing() const {
  return std::ranges::none_of(findings, [](const Finding& f) {
    return assay::compared(f.verdict) || f.verdict == Verdict::statistics_agree ||
           f.verdict == Verdict::agrees_by_sketch || (f.verdict == Verdict::no_rule && is_judged(f));
  });
}

std::int64_t Report::not_compared() const {
  return static_cast<std::int64_t>(findings.size()) - compared() - count(Verdict::ignored);
}

const Finding* Report::first_failure() const {
  const Finding *undecided = nullptr, *without_numbers = nullptr;
  for (const Finding& f : findings) {
    if (is_fine(f.verdict) || f.verdict == Verdict::inherited) continue;
    if (f.verdict == Verdict::undecided) {
      if (undecided == nullptr) undecided = &f;
      continue;
    }
    if (f.metrics || assay::compared(f.verdict)) return &f;
    if (without_numbers == nullptr) without_numbers = &f;
  }
  if (undecided != nullptr) return undecided;
  if (without_numbers != nullptr) return without_numbers;
  const auto follows = std::ranges::find(findings, Verdict::inherited, &Finding::verdict);
  return follows == findings.end() ? nullptr : &*follows;
}

std::string Report::parting() const {
  std::set<std::int64_t> steps;
  for (const Finding& f : findings) steps.insert(f.id.step);
  const auto first = std::ranges::find_if(findings, [](const Finding& f) {
    return f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ;
  });
  if (steps.size() < 2 || first == findings.end()) return "";
  const auto before = std::ranges::distance(steps.begin(), steps.find(first->id.step));
  return fmt::format("of {} steps the sides part at step {}, in {}{}", grouped(std::ssize(steps)),
                     first->id.step, first->name,
                     before == 0 ? "" : fmt::format("; {} before agree", grouped(before)));
}

int Report::exit_status() const {
  if (count(Verdict::unreadable) > 0 || compared_nothing()) return 2;
  return std::ranges::all_of(findings, is_fine, &Finding::verdict) ? 0 : 1;
}

std::string_view Report::verdict() const {
  constexpr std::string_view words[] = {"PASS", "FAIL", "TROUBLE"};
  return words[exit_status()];
}

std::string Report::summary() const {
  const std::int64_t inherited = count(Verdict::inherited);
  const std::int64_t exempt = count(Verdict::exempt);
  const std::int64_t undecided = count(Verdict::undecided);
  const std::int64_t failed = compared() - count(Verdict::passed) - exempt - inherited - undecided;
  std::string line = fmt::format(
      "{} compared: {} passed, {}{} failed, {}{} inherited; {} not compared", grouped(compared()),
      grouped(count(Verdict::passed)), exempt == 0 ? "" : fmt::format("{} exempt, ", grouped(exempt)),
      grouped(failed), undecided == 0 ? "" : fmt::format("{} undecided, ", grouped(undecided)),
      grouped(inherited), grouped(not_compared()));
  if (const std::int64_t agree = count(Verdict::statistics_agree))
    line += fmt::format(", {} of them agree by statistics", grouped(agree));
  if (const std::int64_t agree = count(Verdict::agrees_by_sketch))
    line += fmt::format(", {} of them agree by sketch", grouped(agree));
  if (const std::int64_t ignored = count(Verdict::ignored))
    line += fmt::format("; {} ignored by rule", grouped(ignored));
  return line;
}

}  // namespace assay
