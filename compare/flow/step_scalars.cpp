#include "assay/compare/flow/step_scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "assay/compare/flow/gradient_names.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

constexpr double u = 0x1p-24;  // such numbers are computed in float32

double scalar(const SideValues& side, const Identity& id) {
  const LogicalTensor* t = side.find(id);
  return t == nullptr || element_count(t->shape) != 1 ? NAN : side.read(*t)->values.front();
}

DerivedValue number(double value, double error) {
  DerivedValue e;
  e.values = {value};
  e.error = {error};
  e.roundoff = u;
  return e;
}

bool is(double recorded, const std::optional<DerivedValue>& made) {
  return made && std::abs(recorded - made->values[0]) <= made->error[0] + u * std::abs(made->values[0]);
}

}  // namespace

// Squares are added up in some order: n roundings of the running sum, independent (golden/evidence.h), half
// of which shows in the root.
std::optional<DerivedValue> StepScalars::norm(const SideValues& side, std::int64_t step,
                                              std::vector<Identity>* gradients) {
  double squares = 0, terms = 0;
  for (const LogicalTensor& t : side.tensors()) {
    if (t.id.step != step || !is_whole_gradient(t.id) || side.find(t.id) != &t) continue;
    for (const double v : side.read(t)->values) squares += v * v;
    terms += static_cast<double>(element_count(t.shape));
    if (gradients != nullptr) gradients->push_back(t.id);
  }
  if (terms == 0 || !std::isfinite(squares)) return {};
  const double value = std::sqrt(squares);
  return number(value, (improbable * std::sqrt(terms) / 2 + 2) * u * value);
}

std::optional<DerivedValue> StepScalars::clipped(const Clip& clip, const SideValues& side,
                                                 std::int64_t step) {
  const double norm = scalar(side, at(clip.norm, step, -1));
  if (!std::isfinite(norm)) return {};
  const double value = std::min(1.0, clip.limit / (norm + clip.added));
  return number(value, 3 * u * value);  // the sum, the quotient, and the limit as it is stored
}

// How often each number is in an index, over all micro-batches.
std::optional<DerivedValue> StepScalars::counted(const SideValues& side, const Name& index, std::int64_t step,
                                                 std::int64_t size, std::vector<Identity>* indices) {
  DerivedValue e;
  e.is_exact = true;
  e.values.resize(static_cast<std::size_t>(size), 0);
  bool is_there = false;
  for (const LogicalTensor* t : side.named(index)) {
    if (t->id.step != step) continue;
    is_there = true;
    if (indices != nullptr) indices->push_back(t->id);
    for (const double v : side.read(*t)->values) {
      if (!(v >= 0 && v < static_cast<double>(size))) return {};
      ++e.values[static_cast<std::size_t>(v)];
    }
  }
  return is_there ? std::optional(e) : std::nullopt;
}

StepScalars::StepScalars(const SideValues& reference) {
  std::map<std::string, std::set<Name>> indices;  // by module
  for (const LogicalTensor& t : reference.tensors()) {
    if (t.id.micro_batch >= 0 && t.id.phase == Phase::forward && t.id.slot == "output" && !is_float(t.dtype))
      indices[t.id.module].insert(name_of(t.id));
  }
  for (const LogicalTensor& t : reference.tensors()) {
    const auto near = indices.find(t.id.module);
    if (t.id.micro_batch >= 0 || t.shape.size() != 1 || near == indices.end() || reference.find(t.id) != &t ||
        counts_.contains(name_of(t.id)))
      continue;
    for (const Name& index : near->second) {
      const auto made = counted(reference, index, t.id.step, t.shape.front(), nullptr);
      if (made && made->values == reference.read(t)->values) counts_.emplace(name_of(t.id), index);
    }
  }
  std::map<Name, std::set<std::int64_t>> scalars;
  for (const LogicalTensor& t : reference.tensors()) {
    if (t.id.micro_batch < 0 && is_float(t.dtype) && element_count(t.shape) == 1 && t.shape.empty() &&
        reference.find(t.id) == &t)
      scalars[name_of(t.id)].insert(t.id.step);
  }
  std::map<std::int64_t, std::optional<DerivedValue>> norms;
  for (const auto& [name, steps] : scalars) {
    const bool is_norm = std::ranges::all_of(steps, [&](std::int64_t step) {
      if (!norms.contains(step)) norms[step] = norm(reference, step, nullptr);
      return is(scalar(reference, at(name, step, -1)), norms[step]);
    });
    if (is_norm) norms_[name] = true;
  }
  for (const auto& [name, steps] : scalars) {
    if (!norms_.contains(name)) find_clip(reference, name, {steps.begin(), steps.end()});
  }
}

// One limit for all steps. It shows in a step that is clipped; that it is the same in another, or a number of
// few digits, is no accident.
void StepScalars::find_clip(const SideValues& reference, const Name& name,
                            const std::vector<std::int64_t>& steps) {
  for (const auto& [norm, unused] : norms_) {
    for (const double added : {1e-6, 0.0}) {  // PyTorch and Megatron-LM; MindFormers
      Clip clip{norm, 0, added};
      for (const std::int64_t step : steps) {
        const double c = scalar(reference, at(name, step, -1));
        if (c < 1 && c > 0)
          clip.limit = std::stod(fmt::format("{:.3g}", c * (scalar(reference, at(norm, step, -1)) + added)));
      }
      if (clip.limit == 0) continue;
      const bool holds = std::ranges::all_of(steps, [&](std::int64_t step) {
        return is(scalar(reference, at(name, step, -1)), clipped(clip, reference, step));
      });
      if (!holds) continue;
      clips_[name] = clip;
      return;
    }
  }
}

std::optional<StepScalars::Made> StepScalars::made(const SideValues& side, const Identity& id) const {
  if (id.micro_batch >= 0) return {};
  const Name name = name_of(id);
  Made made;
  std::optional<DerivedValue> expected;
  if (norms_.contains(name)) {
    expected = norm(side, id.step, &made.sources);
    made.how = "the norm of the recorded gradients";
  } else if (const auto clip = clips_.find(name); clip != clips_.end()) {
    expected = clipped(clip->second, side, id.step);
    made.sources = {at(clip->second.norm, id.step, -1)};
    made.how = fmt::format("{:.3g} / ({}{})", clip->second.limit, to_string(made.sources.front()),
                           clip->second.added > 0 ? " + 1e-6" : "");
  }
  if (const auto index = counts_.find(name); index != counts_.end()) {
    if (const LogicalTensor* t = side.find(id); t != nullptr && t->shape.size() == 1)
      expected = counted(side, index->second, id.step, t->shape.front(), &made.sources);
    made.how = "the number of tokens that chose each";
  }
  if (!expected) return {};
  made.expected = std::move(*expected);
  return made;
}

}  // namespace assay
