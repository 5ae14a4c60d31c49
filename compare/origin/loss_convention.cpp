// What programs write down as their loss: a mean over the tokens of a micro-batch, their sum, or its part in
// the mean of a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/origin/find_convention.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Frame = std::pair<std::int64_t, std::int64_t>;  // step and micro-batch
using Losses = std::vector<Finding*>;                 // of one name, in all steps and micro-batches

// What each loss of a name is multiplied by.
struct Scaled {
  std::vector<double> factors;
  std::string name;  // "micro-batches"; empty: 1
};

// How many places of a micro-batch count: all that have a target (negative: none), or each but the first of a
// sequence, which nothing foresees.
using Counts = std::map<Frame, double>;

// Integers that the model is given, or its loss: those of layers are choices of theirs. Also such as only one
// side records.
std::vector<Counts> counts_of_tokens(const Sides& sides) {
  std::vector<Counts> counts;
  for (const Dump* dump : {&sides.actual, &sides.reference}) {
    std::map<std::pair<Name, bool>, Counts> all;
    for (const LogicalTensor& t : logical_tensors(*dump)) {
      if (t.id.phase != Phase::forward || t.id.slot != "input" || t.id.micro_batch < 0 || is_float(t.dtype) ||
          t.shape.empty() || t.shape.back() == 0 || without_numbers(t.id.module) != t.id.module)
        continue;
      (void)trouble_in([&] {
        const std::vector<double> values = merge(*dump, t).tensor.whole().values();
        double counted = 0, without_first = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const bool is_first = i % static_cast<std::size_t>(t.shape.back()) == 0;
          counted += values[i] >= 0 ? 1 : 0;
          without_first += values[i] >= 0 && !is_first ? 1 : 0;
        }
        all[{name_of(t.id), false}][{t.id.step, t.id.micro_batch}] = counted;
        all[{name_of(t.id), true}][{t.id.step, t.id.micro_batch}] = without_first;
      });
    }
    for (auto& [name, own] : all) {
      Counts steps;
      for (const auto& [frame, count] : own) steps[{frame.first, -1}] += count;
      own.merge(steps);
      if (std::ranges::find(counts, own) == counts.end()) counts.push_back(std::move(own));
    }
  }
  return counts;
}

// To the power of -1, 0 or 1: of the tokens of a micro-batch, and of those of its step.
struct Power {
  int own, step;
  const char* name;
};
constexpr Power powers[] = {{1, 0, "tokens"},
                            {-1, 0, "1/tokens"},
                            {0, 1, "tokens of the step"},
                            {0, -1, "1/tokens of the step"},
                            {1, -1, "tokens/tokens of the step"},
                            {-1, 1, "tokens of the step/tokens"}};

// The plainest first.
std::vector<Scaled> conventions(const Losses& losses, std::span<const NamedFactor> names,
                                const std::vector<Counts>& counts) {
  std::vector<Scaled> all;
  std::vector<NamedFactor> sizes = {{1, ""}};
  for (const NamedFactor& n : names) {
    if (n.far_fetched > 0) continue;
    if (n.value != sizes.back().value) all.push_back({std::vector<double>(losses.size(), n.value), n.name});
    sizes.push_back(n);
  }
  for (const Counts& count : counts) {
    for (const Power& power : powers) {
      std::vector<double> factors;
      for (const Finding* f : losses) {
        const auto own = count.find({f->id.step, f->id.micro_batch}), step = count.find({f->id.step, -1});
        if (own == count.end() || step == count.end()) break;
        factors.push_back(std::pow(own->second, power.own) * std::pow(step->second, power.step));
      }
      if (factors.size() != losses.size()) continue;
      for (const NamedFactor& size : sizes) {
        Scaled scaled{factors,
                      size.name.empty() ? power.name : fmt::format("{} x {}", size.name, power.name)};
        for (double& factor : scaled.factors) factor *= size.value;
        all.push_back(std::move(scaled));
      }
    }
  }
  return all;
}

// How many bits of the losses it explains; nothing if one of them is outside of its rule with it.
std::optional<double> explained(const Losses& losses, const std::vector<double>& factors) {
  double bits = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const Finding& f = *losses[i];
    const double size = std::abs(f.reference_value),
                 error = std::abs(f.actual_value / factors[i] - f.reference_value),
                 rounding = unit_roundoff(f.actual_dtype) + unit_roundoff(f.reference_dtype);
    if (!(error <= f.atol + f.rtol * size) || size == 0) return {};
    bits += std::log2(1 / (error / size + rounding));
  }
  return bits;
}

// Whether gradients are nearer to the reference's than half way to the factor of the loss of their
// micro-batch. Where they are scaled themselves, those of parameters tell.
bool is_left_out_of_gradients(const Losses& losses, const std::vector<double>& factors, bool are_scaled,
                              std::span<const Finding> findings) {
  std::map<Frame, double> half;
  double least = infinity;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double own = std::abs(factors[i] - 1) / 2;
    half[{losses[i]->id.step, losses[i]->id.micro_batch}] = own;
    least = std::min(least, own);
  }
  std::int64_t as_reference = 0, others = 0;
  for (const Finding& f : findings) {
    const bool is_whole = is_whole_gradient(f.id);
    if (!(is_whole || (!are_scaled && is_within_micro_batch(f.id))) || !is_comparable(f) ||
        f.metrics->reference.zero == f.metrics->elements)
      continue;
    const auto own = half.find({f.id.step, f.id.micro_batch});
    ++(f.metrics->relative_l2 < (own == half.end() ? least : own->second) ? as_reference : others);
  }
  return as_reference > others;
}

struct Likely {
  Scaled scaled;
  double bits;
};

// The one that explains most; nothing where none explains enough for so many that were tried.
std::optional<Likely> most_likely(const Losses& losses, std::vector<Scaled> tried) {
  std::optional<Likely> best;
  double most = hint_bits + std::log2(static_cast<double>(tried.size()));
  for (Scaled& scaled : tried) {
    const auto bits = explained(losses, scaled.factors);
    if (!bits || *bits <= most) continue;
    most = *bits;
    best = Likely{std::move(scaled), most};
  }
  return best;
}

}  // namespace

void add_losses(ScaleConvention& convention, std::span<Finding> findings, const Sides& sides,
                std::span<const KnownSize> sizes) {
  std::map<Name, Losses> by_name;
  for (Finding& f : findings) {
    if (f.id.slot == "loss" && is_comparable(f) && f.metrics->elements == 1)
      by_name[name_of(f.id)].push_back(&f);
  }
  const std::vector<NamedFactor> names = factor_names(sizes);
  const double of_gradients = convention.factor;
  std::optional<std::vector<Counts>> counts;
  for (const auto& [name, losses] : by_name) {
    const auto is_nearer = [&](const Finding* f) {
      const double ratio = f->actual_value / f->reference_value;
      return std::abs(ratio / of_gradients - 1) < std::abs(ratio - 1);
    };
    const bool follows = of_gradients != 1 && std::ranges::all_of(losses, is_nearer);
    std::optional<Likely> other;
    if (!(follows && explained(losses, std::vector<double>(losses.size(), of_gradients))) &&
        !std::ranges::all_of(losses, is_fine, &Finding::verdict) &&
        std::ranges::none_of(losses, &Finding::asks_for_bits)) {
      if (!counts) counts = counts_of_tokens(sides);
      other = most_likely(losses, conventions(losses, names, *counts));
    }
    const double off =
        other ? std::ranges::max(other->scaled.factors, {}, [](double x) { return std::abs(std::log(x)); })
              : 1;
    const bool is_convention =
        other && is_left_out_of_gradients(losses, other->scaled.factors, of_gradients != 1, findings);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (is_convention) {
        const std::vector<double>& all = other->scaled.factors;
        const bool is_one = std::ranges::all_of(all, [&](double x) { return x == off; });
        convention.losses[losses[i]->id] = {
            all[i], is_one ? fmt::format("{:.6g} = {}", off, other->scaled.name) : other->scaled.name};
      } else if (follows) {
        convention.losses[losses[i]->id] = {of_gradients, convention.text};
      } else if (other) {
        const auto of_one = losses.size() == 1 ? std::optional(other->bits) : std::nullopt;
        losses[i]->diagnoses.push_back(
            {Cause::factor,
             {.factor = other->scaled.factors[i], .factor_names = {other->scaled.name}, .evidence = of_one},
             0});
      }
    }
  }
}

}  // namespace assay
