// What programs write down as their loss: a mean over the tokens of a micro-batch, their sum, or its part in
// the mean of a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "assay/compare/causes/values/factor_names.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/origin/find_convention.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

using Frame = std::pair<std::int64_t, std::int64_t>;  // step and micro-batch
using Losses = std::vector<const Finding*>;           // of one name, in all steps and micro-batches

// What each loss of a name is multiplied by.
struct Scaled {
  std::vector<double> factors;
  std::string name;  // "micro-batches"; empty: 1
};

// How many places of a micro-batch count: all that have a target (negative: none), or each but the first of a
// sequence, which nothing foresees.
using Counts = std::map<Frame, double>;

std::vector<Counts> counts_of_tokens(std::span<const Pair> pairs, const Sides& sides) {
  std::map<std::pair<Name, bool>, Counts> all;
  for (const Pair& pair : pairs) {
    if (pair.actual == nullptr || pair.reference == nullptr) continue;
    const Identity& id = pair.id();
    const LogicalTensor& t = *pair.reference;
    if (id.phase != Phase::forward || id.slot != "input" || id.micro_batch < 0 || is_float(t.dtype) ||
        is_float(pair.actual->dtype) || t.shape.empty() || t.shape.back() == 0)
      continue;
    (void)trouble_in([&] {
      const Tensor actual = merge(sides.actual, *pair.actual).tensor.whole(),
                   reference = merge(sides.reference, t).tensor.whole();
      if (actual.values() != reference.values()) return;
      const std::vector<double> values = reference.values();
      double counted = 0, without_first = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool is_first = i % static_cast<std::size_t>(t.shape.back()) == 0;
        counted += values[i] >= 0 ? 1 : 0;
        without_first += values[i] >= 0 && !is_first ? 1 : 0;
      }
      all[{name_of(id), false}][{id.step, id.micro_batch}] = counted;
      all[{name_of(id), true}][{id.step, id.micro_batch}] = without_first;
    });
  }
  std::vector<Counts> counts;
  for (auto& [name, own] : all) {
    Counts steps;
    for (const auto& [frame, count] : own) steps[{frame.first, -1}] += count;
    own.merge(steps);
    if (std::ranges::find(counts, own) == counts.end()) counts.push_back(std::move(own));
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
        Scaled scaled{factors, size.name.empty() ? power.name : fmt::format("{} x {}", size.name, power.name)};
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

// Where gradients are scaled, those of parameters tell.
bool is_left_out_of_gradients(double factor, bool are_scaled, std::span<const Finding> findings) {
  std::int64_t as_reference = 0, others = 0;
  for (const Finding& f : findings) {
    if (!is_comparable(f) || f.metrics->reference.zero == f.metrics->elements) continue;
    if (is_whole_gradient(f.id) || (!are_scaled && is_within_micro_batch(f.id)))
      ++(is_as_reference(f, factor) ? as_reference : others);
  }
  return as_reference > others;
}

}  // namespace

void add_losses(ScaleConvention& convention, std::span<const Finding> findings, std::span<const Pair> pairs,
                const Sides& sides, std::span<const KnownSize> sizes) {
  std::map<Name, Losses> by_name;
  for (const Finding& f : findings) {
    if (f.id.slot == "loss" && is_comparable(f) && f.metrics->elements == 1)
      by_name[name_of(f.id)].push_back(&f);
  }
  const std::vector<NamedFactor> names = factor_names(sizes);
  std::optional<std::vector<Counts>> counts;
  for (const auto& [name, losses] : by_name) {
    const auto take = [&](const std::vector<double>& factors, auto text) {
      for (std::size_t i = 0; i < losses.size(); ++i)
        convention.losses[losses[i]->id] = {factors[i], text(factors[i])};
    };
    const auto is_scaled = [&](const Finding* f) {
      const double ratio = f->actual_value / f->reference_value;
      return std::abs(ratio / convention.factor - 1) < std::abs(ratio - 1);
    };
    if (convention.factor != 1 && std::ranges::all_of(losses, is_scaled)) {
      take(std::vector<double>(losses.size(), convention.factor), [&](double) { return convention.text; });
      continue;
    }
    if (std::ranges::all_of(losses, is_fine, &Finding::verdict) ||
        std::ranges::any_of(losses, &Finding::asks_for_bits))
      continue;
    if (!counts) counts = counts_of_tokens(pairs, sides);
    const std::vector<Scaled> all = conventions(losses, names, *counts);
    const Scaled* best = nullptr;
    double most = hint_bits + std::log2(static_cast<double>(all.size()));
    for (const Scaled& scaled : all) {
      const auto bits = explained(losses, scaled.factors);
      if (!bits || *bits <= most) continue;
      most = *bits;
      best = &scaled;
    }
    if (best == nullptr) continue;
    const auto off = std::ranges::max(best->factors, {}, [](double x) { return std::abs(std::log(x)); });
    if (is_left_out_of_gradients(off, convention.factor != 1, findings))
      take(best->factors, [&](double x) { return fmt::format("{:.6g} = {}", x, best->name); });
  }
}

}  // namespace assay
