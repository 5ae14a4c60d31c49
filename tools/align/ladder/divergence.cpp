#include "assay/align/ladder/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace assay::align {
namespace {

// The norm of the gradients is the optimizer's first number.
Phase phase_of(const Finding& f) {
  return f.id.slot == "loss" && f.id.arg == "grad_norm" ? Phase::optimizer : f.id.phase;
}

// In the order in which a step goes, whenever it was recorded; what is missing says less than what is wrong.
auto order_of(const Finding& f) {
  const bool is_measured = compared(f.verdict) || f.verdict == Verdict::no_rule;
  return std::tuple(is_measured ? 0 : 1, f.id.step, phase_of(f));
}

// "model.layers.3" of "model.layers.3.mlp"; empty: of no layer.
std::string_view layer_of(std::string_view module) {
  constexpr std::string_view digits = "0123456789";
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
    const std::size_t end = std::min(module.find('.', dot + 1), module.size());
    const std::string_view part = module.substr(dot + 1, end - dot - 1);
    if (!part.empty() && part.find_first_not_of(digits) == std::string_view::npos)
      return module.substr(0, end);
  }
  return {};
}

// The first tensor of a layer of which the subject has nothing in a step: it was not computed, and what comes
// after is wrong for that.
std::optional<std::size_t> missing_layer(const std::vector<Finding>& findings, std::size_t before,
                                         std::optional<Diagnosis>& why) {
  struct Seen {
    std::size_t first;
    std::int64_t count = 0;
    bool is_there = false;
  };
  std::map<std::string_view, Seen> layers;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    const std::string_view layer = layer_of(f.id.module);
    if (layer.empty() || f.id.phase != Phase::forward || f.id.slot == "param" ||
        f.id.step != findings[before].id.step)
      continue;
    Seen& seen = layers.try_emplace(layer, Seen{i}).first->second;
    ++seen.count;
    seen.is_there |= f.verdict != Verdict::missing_actual;
  }
  const bool any_is_there = std::ranges::any_of(layers, [](const auto& l) { return l.second.is_there; });
  std::optional<std::size_t> first;
  for (const auto& [layer, seen] : layers) {
    if (seen.is_there || !any_is_there || seen.first > before || (first && *first < seen.first)) continue;
    first = seen.first;
    why = Diagnosis{Cause::missing_layer, {.elements = seen.count, .module = std::string(layer)}};
  }
  return first;
}

}  // namespace

std::optional<Divergence> divergence_of(const RungResult& result, const std::vector<Traffic>& traffic) {
  if (!result.report) return std::nullopt;
  const std::vector<Finding>& findings = result.report->findings;
  std::vector<std::size_t> roots = roots_of(*result.report);
  if (roots.empty()) return std::nullopt;
  std::ranges::stable_sort(roots, {}, [&](std::size_t i) { return order_of(findings[i]); });
  std::optional<Diagnosis> why;
  if (const auto missing = missing_layer(findings, roots.front(), why)) {
    std::erase(roots, *missing);
    roots.insert(roots.begin(), *missing);
  }
  const Finding& f = findings[roots.front()];
  Divergence d;
  d.strategies = switches_of(result.rung.parallel);
  d.phase = name(phase_of(f));
  d.module = f.id.module;
  d.tensor = f.name;
  d.step = f.id.step;
  d.micro_batch = f.id.micro_batch;
  d.finding = roots.front();
  d.others.assign(roots.begin() + 1, roots.end());
  if (f.origin) d.origin = f.origin->reason;
  if (why)
    d.diagnosis = std::move(why);
  else if (!f.diagnoses.empty())
    d.diagnosis = f.diagnoses.front();
  if (d.diagnosis) {
    d.cause = sentence(*d.diagnosis);
  } else {
    d.cause = f.reason;
    // One that says what was done may stand for it: the same mistake in a tensor of which more is known.
    const auto told = std::ranges::find_if(d.others, [&](std::size_t i) {
      return !findings[i].diagnoses.empty() && order_of(findings[i]) == order_of(f);
    });
    if (told != d.others.end()) {
      d.diagnosis_of_other = findings[*told].diagnoses.front();
      d.cause += fmt::format("; of {}: {}", findings[*told].name, sentence(*d.diagnosis_of_other));
    }
  }
  const bool is_gradient = f.id.slot == "grad", backward = f.id.phase != Phase::forward;
  d.behind = behind(traffic, f.id.module, is_gradient, backward);
  return d;
}

}  // namespace assay::align
