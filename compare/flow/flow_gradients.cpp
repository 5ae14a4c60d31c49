// The gradient of a value: what its uses hand back.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/operators/engine/recorded.h"

namespace assay {

const LogicalTensor* Flow::recorded_gradient(const Side& side, const Name& value,
                                             const Identity& frame) const {
  return value.slot == "value" ? nullptr : side.values.find(gradient_of(value, frame));
}

std::optional<Flow::Made> Flow::made_backward(const Side& side, const LogicalTensor& t) const {
  const Name value = value_of(t.id);
  const auto uses = relations_.uses.find(value);
  auto expected = gradient(side, value, t.id);
  if (!expected) return {};
  if (uses == relations_.uses.end()) return Made{std::move(*expected), hidden_.describe(value, t.id)};
  std::string how;
  for (const Use& use : uses->second)
    how += (how.empty() ? "" : ", ") + to_string(gradient_of(record_of(use.target), t.id));
  const bool is_lone = uses->second.size() == 1;
  const bool is_copy = is_lone && expected->is_exact;
  return Made{std::move(*expected), (is_lone ? "" : "the sum of ") + how, is_copy};
}

// The sum of what all uses of a value give back.
std::optional<DerivedValue> Flow::gradient(const Side& side, const Name& value, const Identity& frame) const {
  auto terms = gradient_terms(side, value, frame);
  if (!terms) return {};
  std::vector<DerivedValue> values;
  for (Term& term : *terms) values.push_back(std::move(term.value));
  return sum_of(std::move(values));
}

// The micro-batches of a step in which something is made of the parameter.
std::set<std::int64_t> Flow::micro_batches_of(const Side& side, const Name& param, std::int64_t step) const {
  std::set<std::int64_t> all;
  for (const Use& use : relations_.uses.at(param)) {
    for (const LogicalTensor* t : side.values.named(record_of(use.target))) {
      if (t->id.step == step) all.insert(t->id.micro_batch);
    }
  }
  return all;
}

// Of one that no operator takes: what all that is made of it hands back. Shares of it were recorded before.
std::optional<Flow::Made> Flow::gradient_of_parameter(const Side& side, const LogicalTensor& t) const {
  const Name param = parameter_of(t.id);
  Identity share = t.id;
  share.arg += unreduced;
  if (!t.id.arg.ends_with(unreduced) && side.values.find(share) != nullptr) return {};
  // It is stored in the parameter's dtype wherever it is, before it is recorded in another one.
  const LogicalTensor* own = side.values.find(at(record_of(param), t.id.step, -1));
  const double stored = own == nullptr ? 0 : unit_roundoff(own->dtype);
  std::vector<DerivedValue> terms;
  for (const std::int64_t micro_batch : micro_batches_of(side, param, t.id.step)) {
    Identity frame = t.id;
    frame.micro_batch = micro_batch;
    auto term = gradient(side, param, frame);
    if (!term) return {};
    if (stored > term->roundoff) {
      for (double& e : term->error) e *= term->roundoff > 0 ? stored / term->roundoff : 1;
      term->roundoff = stored;
      term->is_exact = false;
    }
    terms.push_back(std::move(*term));
  }
  auto sum = sum_of(std::move(terms));
  if (!sum) return {};
  sum->error.resize(sum->values.size(), 0);
  for (std::size_t i = 0; i < sum->error.size(); ++i) sum->error[i] += stored * sum->size(i);
  return Made{times(std::move(*sum), is_whole_gradient(t.id) ? scale_of_sums(&side.values == &actual_) : 1),
              "the sum of what all that is made of it hands back"};
}

std::optional<std::vector<Flow::Term>> Flow::gradient_terms(const Side& side, const Name& value,
                                                            const Identity& frame) const {
  std::vector<Term> terms;
  const auto uses = relations_.uses.find(value);
  for (const Use& use : uses == relations_.uses.end() ? std::vector<Use>() : uses->second) {
    // An expert without tokens in this micro-batch has no call.
    const Identity target = at(record_of(use.target), frame.step, frame.micro_batch);
    if (side.values.find(target) == nullptr && !side.calls.has_call(target)) {
      const auto condition = condition_of(target);
      const bool is_actual = &side.values == &actual_;
      if (condition ? chosen(is_actual, *condition, target) == false : !reference_calls_.has_call(target))
        continue;
      return {};
    }
    if (!use.is_input && goes_into_no_loss(use.target, frame)) continue;
    if (use.is_input &&
        (gives_nothing_back(target) || is_given_back_with_another(side, use, uses->second, frame)))
      continue;
    // A module around others hands back what they do, one by one: their sum is stored nowhere.
    if (use.is_input && relations_.uses.contains(use.target) &&
        recorded_gradient(side, use.target, frame) == nullptr) {
      auto inside = gradient_terms(side, use.target, frame);
      if (!inside) return {};
      std::ranges::move(*inside, std::back_inserter(terms));
      continue;
    }
    auto term = given_back(side, value, use, frame);
    if (!term) return {};
    terms.push_back({to_string(gradient_of(record_of(use.target), frame)), std::move(*term)});
  }
  if (hidden_.knows(value)) {
    auto term = hidden_.gradient(side.values, side.calls, value, frame);
    if (!term) return {};
    terms.push_back({hidden_.describe(value, frame), std::move(*term)});
  } else if (uses == relations_.uses.end()) {
    return {};
  }
  if (terms.size() > 1) add_roundings_of_addends(side, value, frame, terms);
  return terms;
}

// A module may hand back several addends of one gradient (a norm's two, an attention's three), and autograd
// adds each to what is there already. They may be larger than their sum, which alone was recorded: the bound
// of the operator that makes them, or of the sum in the module, counts a rounding of each.
void Flow::add_roundings_of_addends(const Side& side, const Name& value, const Identity& frame,
                                    std::vector<Term>& terms) const {
  for (const Use& use : relations_.uses.at(value)) {
    if (!use.is_input || recorded_gradient(side, use.target, frame) == nullptr) continue;
    const std::string name = to_string(gradient_of(record_of(use.target), frame));
    const auto term = std::ranges::find(terms, name, &Term::name);
    if (term == terms.end()) continue;
    was_together_ = true;
    if (!is_apart_) continue;
    const auto own = relations_.uses.contains(use.target) ? gradient(side, use.target, frame)
                                                          : of_call(side, use.target, value, frame);
    if (!own || own->values.size() != term->value.values.size()) continue;
    term->value.error.resize(own->values.size(), 0);
    for (std::size_t i = 0; i < own->values.size(); ++i) term->value.error[i] += own->of(i);
  }
}

// A module that the reference has no gradient of, of its results or its inputs, took no more than a shape or
// a dtype; one that handed back gradients of other inputs, and does nothing inside with this one, did not use
// it. Where it only was not recorded, the sum of the others does not hold in the reference.
bool Flow::gives_nothing_back(const Identity& input) const {
  const LogicalTensor* t = reference_.find(input);
  if (t == nullptr) return false;
  const std::vector<const LogicalTensor*> around = reference_calls_.around(*t);
  if (std::ranges::none_of(around, [](const auto* other) { return other->id.phase == Phase::backward; }))
    return true;
  const Name name = name_of(input);
  return !relations_.uses.contains(name) && reference_calls_.operator_of(*t) == nullptr &&
         reference_.find(gradient_of(name, input)) == nullptr &&
         std::ranges::any_of(around, [](const auto* other) { return other->id.slot == "grad_input"; });
}

// A result that nobody uses, and of which the reference has no gradient in a call that has others: logits
// that a program returns, too, in another order. Where its gradient only was not recorded, the sum of the
// others does not hold in the reference.
bool Flow::goes_into_no_loss(const Name& result, const Identity& frame) const {
  const LogicalTensor* t =
      result.slot == "output" ? reference_.find(at(result, frame.step, frame.micro_batch)) : nullptr;
  if (t == nullptr || relations_.uses.contains(result) || hidden_.knows(result) ||
      reference_.find(gradient_of(result, frame)) != nullptr)
    return false;
  return std::ranges::any_of(reference_calls_.around(*t),
                             [](const LogicalTensor* other) { return other->id.phase == Phase::backward; });
}

// A call that was given a tensor under several names (attention's query, key and value) hands back one
// gradient, under the first; and what modules inside took of it is known under one of them.
bool Flow::is_given_back_with_another(const Side& side, const Use& use, const std::vector<Use>& uses,
                                      const Identity& frame) const {
  if (relations_.uses.contains(use.target) || recorded_gradient(side, use.target, frame) != nullptr)
    return false;
  return std::ranges::any_of(uses, [&](const Use& other) {
    return other.is_input && other.target.module == use.target.module &&
           other.target.call == use.target.call &&
           (relations_.uses.contains(other.target) ||
            recorded_gradient(side, other.target, frame) != nullptr);
  });
}

std::optional<DerivedValue> Flow::given_back(const Side& side, const Name& value, const Use& use,
                                             const Identity& frame) const {
  if (use.is_input) {
    if (const LogicalTensor* recorded = recorded_gradient(side, use.target, frame))
      return as_expected(*side.values.read(*recorded));
    return of_call(side, use.target, value, frame);
  }
  const auto relation = relations_.made.find(use.target);
  if (relation == relations_.made.end()) return {};
  const LogicalTensor* recorded = recorded_gradient(side, use.target, frame);
  const auto of_target = recorded != nullptr ? std::optional(as_expected(*side.values.read(*recorded)))
                                             : gradient(side, use.target, frame);
  const LogicalTensor* target = side.values.find(at(record_of(use.target), frame.step, frame.micro_batch));
  const LogicalTensor* source = side.values.find(at(record_of(value), frame.step, frame.micro_batch));
  if (!of_target || target == nullptr || source == nullptr) return {};
  return adjoint(relation->second, use.source, *of_target, target->shape, source->shape,
                 reader_at(side.values, frame));
}

// The gradient of what a call made that is in no module: that of a value with several uses. Sets the
// attributes that its inputs tell.
std::optional<Call> Flow::with_computed_gradient(const Side& side, const RecordedCall& recorded,
                                                 const std::string& module, const Tensor& result,
                                                 const Identity& frame, Attributes& attributes) const {
  const auto hidden = std::ranges::find(relations_.hidden, module, &HiddenCall::module);
  const Arg* missing = recorded.lacking(Role::grad_output);
  const auto is_there = [&](Role role) { return recorded.lacking(role) == nullptr; };
  if (hidden == relations_.hidden.end() || missing == nullptr || !is_there(Role::input) ||
      !is_there(Role::param) || !is_there(Role::index))
    return {};
  const LogicalTensor* output = side.values.find(at(hidden->result, frame.step, frame.micro_batch));
  const auto of_output = gradient(side, hidden->value(), frame);
  if (!of_output || output == nullptr) return {};
  std::vector<NamedTensor> inputs;
  Device device = Device::of(result.dtype());
  for (const RecordedCall::Input& given : recorded.inputs) {
    const Tensor whole = merge(side.values.dump(), *given.tensor).tensor.whole();
    inputs.push_back({given.name, whole});
    device.see(whole.dtype());
  }
  device.see(result.dtype());
  // It was stored behind its last addition.
  std::vector<double> error(of_output->values.size(), 0);
  const double roundoff = of_output->is_exact ? 0 : unit_roundoff(output->dtype);
  for (std::size_t i = 0; i < error.size(); ++i)
    error[i] = of_output->of(i) + roundoff * (std::abs(of_output->values[i]) + of_output->of(i));
  inputs.push_back(
      {std::string(missing->name), Tensor::from_values(DType::float64, output->shape, of_output->values)});
  if (recorded.op->infer != nullptr) {
    Recorded shapes{inputs, recorded.output, result};
    recorded.op->infer(shapes);
    for (const auto& [name, value] : shapes.attributes.values()) attributes.set(name, value);
  }
  return Call(*recorded.op, std::move(inputs), recorded.output, result, device,
              {{std::string(missing->name), std::move(error)}});
}

// The gradient that a call has for an input, where nobody recorded it.
std::optional<DerivedValue> Flow::of_call(const Side& side, const Name& input, const Name& value,
                                          const Identity& frame) const {
  const LogicalTensor* source = side.values.find(at(record_of(value), frame.step, frame.micro_batch));
  if (source == nullptr) return {};
  LogicalTensor wanted = *source;
  wanted.id = gradient_of(input, frame);
  std::vector<RecordedCall> calls = side.calls.producers(wanted);
  if (calls.empty()) return {};
  const bool is_complete = std::ranges::all_of(calls, &RecordedCall::is_complete);
  if (!is_complete && calls.size() > 1) return {};
  const Operator& op = *calls.front().op;
  const Tensor result(source->dtype, source->shape);
  const CallVariant* known = fitted_.known(op, input.module, calls.front().attributes);
  CallVariant variant = known != nullptr ? *known : CallVariant{};
  auto made = is_complete ? Call(side.values.dump(), calls, result)
                          : with_computed_gradient(side, calls.front(), input.module, result, frame,
                                                   variant.attributes);
  if (!made || made->is_too_large()) return {};
  const bool takes_long = made->work() > work_of_a_look;
  const bool quick = is_quick_ && takes_long;
  was_quick_ = was_quick_ || quick;
  if (is_complete) last_.give(*made, calls, variant, quick);
  const auto compared = made->expected(variant, quick);
  if (!compared || compared->allowed.empty()) return {};
  DerivedValue e;
  e.values = compared->golden.values();
  e.error = compared->allowed;
  e.roundoff = unit_roundoff(source->dtype);
  return e;
}

}  // namespace assay
