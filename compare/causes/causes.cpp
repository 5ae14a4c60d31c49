#include "assay/compare/causes/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "assay/compare/causes/optimizer/optimizer_faults.h"
#include "assay/compare/causes/values/known_sizes.h"
#include "assay/compare/causes/values/other_tensor.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// A report is read from its top; the causes of the first failures are those of the others.
constexpr std::size_t most_explained = 50;
// Each is read whole; a buffer that was not renewed holds what was in it a few steps or micro-batches ago,
// alone or with something added to it.
constexpr std::size_t most_near = 64;

class Causes {
 public:
  Causes(const Sides& sides, const TensorsById& reference)
      : sides_(sides), reference_(reference), sizes_(known_sizes(sides)) {
    for (const LogicalTensor& t : sides.reference_tensors) by_name_[name_of(t.id)].push_back(&t);
  }

  void explain(Finding& f, const Pair& pair) {
    const TensorSource actual = merge(sides_.actual, *pair.actual).tensor;
    const TensorSource reference = merge(sides_.reference, *pair.reference).tensor;
    if (actual.shape() != reference.shape() || !is_float(actual.dtype()) || !is_float(reference.dtype()))
      return;
    const DiagnosisContext context{allowed_for_causes(f), sizes_};
    const FailingPair failing(actual, reference, context);
    if (failing.over > 0) {
      for (Diagnosis& d : assay::explain(failing)) add_new(f, std::move(d));
      stale(f, pair, failing);
      added(f, pair, failing);
    }
    std::ranges::stable_sort(f.diagnoses, {},
                             [](const Diagnosis& d) { return std::pair(says(d.cause), d.residual); });
    if (f.verdict == Verdict::mistrusted) return;
    std::string where = error_pattern(actual, reference, context);
    if (!where.empty()) f.notes.push_back("errors: " + where);
  }

 private:
  // A rule that the values are below says nothing of them: they are held to it on their own scale.
  static Allowed allowed_for_causes(const Finding& f) {
    if (f.verdict != Verdict::mistrusted) return {f.atol, f.rtol, {}};
    const Side& r = f.metrics->reference;
    return {std::min(f.atol, f.rtol * std::hypot(r.mean, r.std)), f.rtol, {}};
  }

  // What was found by a sharper comparison is not said twice.
  static void add_new(Finding& f, Diagnosis d) {
    if (std::ranges::find(f.diagnoses, d.cause, &Diagnosis::cause) == f.diagnoses.end())
      f.diagnoses.push_back(std::move(d));
  }

  // What it is in every step and micro-batch.
  using Name = std::tuple<Phase, std::string, std::string, std::string>;
  static Name name_of(const Identity& id) { return {id.phase, id.module, id.slot, id.arg}; }

  const LogicalTensor* find(const Identity& id) const { return reference_.with_values(sides_.reference, id); }

  TensorSource read(const LogicalTensor& t) const { return merge(sides_.reference, t).tensor; }

  // What it is in other steps, micro-batches and calls.
  std::vector<const LogicalTensor*> nearest(const Identity& own, const Shape& shape) const {
    std::vector<const LogicalTensor*> others;
    for (const LogicalTensor* t : by_name_.at(name_of(own))) {
      if (t->id != own && t->shape == shape && find(t->id) != nullptr) others.push_back(t);
    }
    std::ranges::stable_sort(others, {}, [&](const LogicalTensor* t) {
      return std::tuple(std::abs(t->id.step - own.step), std::abs(t->id.micro_batch - own.micro_batch),
                        std::abs(t->id.call - own.call));
    });
    others.resize(std::min(others.size(), most_near));
    return others;
  }

  // The tensor of another step or micro-batch.
  void stale(Finding& f, const Pair& pair, const FailingPair& failing) const {
    const Identity& own = pair.reference->id;
    const std::vector<const LogicalTensor*> candidates = nearest(own, failing.actual.shape());
    for (const LogicalTensor* tensor : candidates) {
      const Identity& id = tensor->id;
      const auto left = equals(failing, read(*tensor), candidates.size());
      if (!left) continue;
      CauseParameters which;
      if (id.step != own.step) which.step = id.step;
      if (id.micro_batch != own.micro_batch) which.micro_batch = id.micro_batch;
      if (id.call != own.call) which.call = id.call;
      f.diagnoses.push_back({Cause::stale, std::move(which), *left});
      return;
    }
  }

  struct Term {
    Identity id;
    const char* name;
  };
  // What a program may have added to a tensor, or left out.
  std::vector<Term> terms_of(const Identity& id, const Shape& shape) const {
    const std::string param = id.arg.substr(0, id.arg.find('.'));
    std::vector<Term> terms = {
        {{id.step, -1, Phase::forward, id.module, "param", param, 0}, "its parameter before the step"},
        {{id.step, -1, Phase::forward, id.module, "param", "bias", 0}, "the bias"},
        {{id.step, -1, Phase::backward, id.module, "grad", param, 0}, "its gradient"},
        {{id.step - 1, -1, Phase::backward, id.module, "grad", param, 0}, "its gradient of the step before"},
        {{id.step, id.micro_batch, Phase::forward, id.module, "input", "x", id.call}, "the module's input"},
        {{id.step, id.micro_batch, Phase::backward, id.module, "grad_output", "y", id.call},
         "the gradient of the module's output"},
    };
    for (const LogicalTensor* other : nearest(id, shape)) {
      if (other->id.step == id.step && other->id.micro_batch < id.micro_batch)
        terms.push_back({other->id, "the tensor of a micro-batch before"});
    }
    return terms;
  }

  // actual = reference + c T for a tensor T that was recorded beside it.
  void added(Finding& f, const Pair& pair, const FailingPair& failing) const {
    const Identity& own = pair.reference->id;
    const Shape& shape = failing.actual.shape();
    const std::vector<Term> terms = terms_of(own, shape);
    for (const Term& term : terms) {
      const LogicalTensor* tensor = find(term.id);
      if (tensor == nullptr || tensor->id == own || !is_float(tensor->dtype)) continue;
      const bool is_row = !shape.empty() && tensor->shape == Shape{shape.back()};
      if (tensor->shape != shape && !is_row) continue;
      const auto sum = added_term(failing, read(*tensor), terms.size());
      if (!sum) continue;
      const bool decays =
          own.phase == Phase::optimizer && term.id.slot == "param" && std::abs(sum->factor) < 1;
      f.diagnoses.push_back(
          {Cause::added,
           {.factor = sum->factor, .term = term.name, .decays = decays, .tensor = to_string(term.id)},
           sum->residual});
      return;
    }
  }

  const Sides& sides_;
  const TensorsById& reference_;
  std::map<Name, std::vector<const LogicalTensor*>> by_name_;
  std::vector<KnownSize> sizes_;
};

}  // namespace

void find_causes(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                 const TensorsById& reference) {
  Causes causes(sides, reference);
  std::size_t explained = 0;
  for (std::size_t i = 0; i < pairs.size() && explained < most_explained; ++i) {
    Finding& f = findings[i];
    const bool open = f.verdict == Verdict::failed || f.verdict == Verdict::replicas_differ ||
                      f.verdict == Verdict::no_rule || f.verdict == Verdict::mistrusted;
    // Proven on the step's own inputs: what the values look like says no more.
    const bool is_explained = std::ranges::any_of(f.diagnoses, is_of_optimizer, &Diagnosis::cause);
    if (!open || is_explained || !f.metrics || pairs[i].actual == nullptr || pairs[i].reference == nullptr)
      continue;
    ++explained;
    // The verdict stands without a diagnosis.
    if (const auto trouble = trouble_in([&] { causes.explain(f, pairs[i]); }))
      f.notes.push_back(fmt::format("no diagnosis: {}", *trouble));
  }
}

}  // namespace assay
