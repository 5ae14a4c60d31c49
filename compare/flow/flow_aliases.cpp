// Names of one tensor, and what calls were given under other names.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"

namespace assay {

// A result that a module hands out as it was made inside is one tensor with it, and a tensor has one
// gradient: what its uses inside and outside hand back, whichever of its names it was recorded under.
void Flow::join_aliases() {
  std::map<Name, Name> same;  // as the value that it is
  for (const auto& [target, r] : relations_.made) {
    if (r.kind == Relation::Kind::copy && target.slot == "output" &&
        have_one_gradient(target, r.sources.front()))
      same[target] = r.sources.front();
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
    for (const Name& name : names) {
      const auto own = relations_.uses.find(name);
      if (own == relations_.uses.end()) continue;
      const auto is_alias = [&](const Use& use) { return !use.is_input && names.contains(use.target); };
      is_chain = is_chain && (own->second.size() == 1 || std::ranges::none_of(own->second, is_alias));
      std::ranges::remove_copy_if(own->second, std::back_inserter(uses), is_alias);
    }
    if (is_chain) continue;
    for (const Name& name : names) relations_.uses[name] = uses;
  }
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
