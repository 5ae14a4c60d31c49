// Names of one tensor, and what calls were given under other names.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"

namespace assay {

// A result that a module hands out as it was made inside, or as the module was given it, is one tensor with
// it, and a tensor has one gradient: what its uses inside and outside hand back, whichever of its names it
// was recorded under.
void Flow::join_aliases() {
  std::map<Name, Name> same;  // as the value that it is
  std::set<Name> handed_on;   // inputs under which it came in
  for (const auto& [target, r] : relations_.made) {
    if (r.kind != Relation::Kind::copy || target.slot != "output") continue;
    std::vector<Name> inputs;
    Name source = r.sources.front();
    for (auto given = relations_.made.find(source);
         source.slot == "input" && given != relations_.made.end() &&
         given->second.kind == Relation::Kind::copy && !has_gradient(source);
         given = relations_.made.find(source)) {
      inputs.push_back(source);
      source = given->second.sources.front();
    }
    if (!have_one_gradient(target, source)) continue;
    same[target] = source;
    handed_on.insert(inputs.begin(), inputs.end());
  }
  std::map<Name, std::set<Name>> joined;  // by the first of them
  for (const auto& [target, source] : same) {
    Name first = source;
    for (auto next = same.find(first); next != same.end(); next = same.find(first)) first = next->second;
    joined[first].insert({first, source, target});
  }
  for (const auto& [first, names] : joined) {
    std::vector<Use> uses;
    bool is_chain = true;  // each is used as the next one only
    const std::function<void(const Name&)> collect = [&](const Name& name) {
      const auto own = relations_.uses.find(name);
      if (own == relations_.uses.end()) return;
      for (const Use& use : own->second) {
        const bool is_alias = !use.is_input && names.contains(use.target);
        is_chain = is_chain && (own->second.size() == 1 || !is_alias);
        if (use.is_input && handed_on.contains(use.target))
          collect(use.target);
        else if (!is_alias)
          uses.push_back(use);
      }
    };
    std::ranges::for_each(names, collect);
    if (is_chain) continue;
    for (const Name& name : names) relations_.uses[name] = uses;
  }
}

// Recorded anywhere.
bool Flow::has_gradient(const Name& value) const {
  return std::ranges::any_of(reference_.named(record_of(value)), [&](const LogicalTensor* t) {
    return reference_.find(gradient_of(value, t->id)) != nullptr;
  });
}

// Bit for bit, wherever both were recorded.
bool Flow::have_one_gradient(const Name& a, const Name& b) const {
  bool is_any = false;
  for (const LogicalTensor* t : reference_.named(record_of(a))) {
    const LogicalTensor *of_a = reference_.find(gradient_of(a, t->id)),
                        *of_b = recorded_gradient({reference_, reference_calls_}, b, t->id);
    if (of_a == nullptr || of_b == nullptr) continue;
    if (reference_.read(*of_a)->values != reference_.read(*of_b)->values) return false;
    is_any = true;
  }
  return is_any;
}

void Flow::lend(const Borrowed& b, const SideValues& side, RecordedCalls& calls) const {
  for (const LogicalTensor* t : side.named(record_of(b.source))) {
    if (t->id.micro_batch < 0)
      calls.lend_parameter(*t, b.input);
    else
      calls.lend(*t, at(b.input, t->id.step, t->id.micro_batch));
  }
}

// The gradient that a module has for what it was given is that of the result where nobody else uses it, and
// that of what the call itself was given is the call's. A side that knows what made the result needs no other
// call, which would count twice in gradients of parameters.
void Flow::lend(const HiddenCall& h, const SideValues& side, RecordedCalls& calls) const {
  const auto has_one_use = [&](const Name& value) {
    const auto uses = relations_.uses.find(value);
    return uses != relations_.uses.end() && uses->second.size() == 1;
  };
  const bool is_lone = h.result.slot == "output" || has_one_use(h.value());
  for (const LogicalTensor* t : side.named(h.result)) {
    if (!calls.producers(*t).empty()) continue;
    std::vector<RecordedCall::Input> inputs;
    for (const Borrowed& b : h.inputs) {
      if (const LogicalTensor* source = side.find(at(record_of(b.source), t->id.step, t->id.micro_batch)))
        inputs.push_back({b.input.arg, source});
    }
    std::vector<RecordedCall::Input> others;
    for (const auto& [output, name] : h.others) {
      if (const LogicalTensor* other = side.find(at(name, t->id.step, t->id.micro_batch)))
        others.push_back({output, other});
    }
    const LogicalTensor* gradient = is_lone ? side.find(gradient_of(h.result, t->id)) : nullptr;
    std::vector<RecordedCall::Input> handed_back;
    for (const Borrowed& b : gradient == nullptr ? std::vector<Borrowed>() : h.inputs) {
      if (b.source.slot == "value" || !has_one_use(b.source)) continue;
      if (const LogicalTensor* own = side.find(gradient_of(b.source, t->id)))
        handed_back.push_back({b.input.arg, own});
    }
    calls.lend_call(*h.op, h.module, inputs, {h.output, t}, others, gradient, handed_back);
  }
}

}  // namespace assay
