// What a tensor of the reference is made of.
#include <algorithm>
#include <functional>
#include <set>

#include "assay/compare/flow/flow.h"
#include "assay/compare/flow/gradient_names.h"

namespace assay {

// What a tensor is made of, in the step and micro-batch of any.
const Relation* Flow::relation_of(const Identity& id) const {
  const auto found = relations_.made.find(name_of(id));
  if (found == relations_.made.end()) return nullptr;
  const Relation& r = found->second;
  // A value that was recorded as this input only.
  if (r.kind != Relation::Kind::copy || r.sources.front().slot != "value" ||
      record_of(r.sources.front()) != name_of(id))
    return &r;
  const auto value = relations_.made.find(r.sources.front());
  return value == relations_.made.end() ? nullptr : &value->second;
}

std::vector<const LogicalTensor*> Flow::given(const LogicalTensor& reference) const {
  std::vector<const LogicalTensor*> found;
  for (const RecordedCall& call : reference_calls_.producers(reference)) {
    for (const RecordedCall::Input& input : call.inputs) {
      const LogicalTensor* t = input.tensor;
      if (const auto lent = relations_.made.find(name_of(t->id));
          reference_.find(t->id) == nullptr && lent != relations_.made.end())
        t = reference_.find(at(record_of(lent->second.sources.front()), t->id.step, t->id.micro_batch));
      if (t != nullptr) found.push_back(t);
    }
  }
  return found;
}

std::vector<const LogicalTensor*> Flow::sources(const LogicalTensor& t) const {
  std::vector<const LogicalTensor*> found;
  // What was recorded as an input only is made of a value of that record: where it lacks, of itself.
  std::set<Name> lacking;
  const std::function<void(const Identity&)> add = [&](const Identity& id) {
    if (const LogicalTensor* s = reference_.find(id)) {
      if (s != &t) found.push_back(s);
    } else if (const auto lent = relations_.made.find(name_of(id));
               lent != relations_.made.end() && lacking.insert(lent->first).second) {
      for (const Name& source : lent->second.sources) add(at(record_of(source), id.step, id.micro_batch));
    } else if (const auto call = std::ranges::find(relations_.hidden, id.module, &HiddenCall::module);
               call != relations_.hidden.end() && id.slot == "grad_output" &&
               lacking.insert(name_of(id)).second) {
      add(gradient_of(call->result, id));
    }
  };
  // What a gradient was handed back from.
  const auto add_gradients = [&](const Name& of, const Identity& frame) {
    std::vector<Name> values = {of};
    while (!values.empty()) {
      const Name value = values.back();
      values.pop_back();
      const auto uses = relations_.uses.find(value);
      if (const LogicalTensor* index = hidden_.index_of(reference_, value, frame)) {
        add(at(record_of(value), frame.step, frame.micro_batch));
        found.push_back(index);
      }
      if (uses == relations_.uses.end()) continue;
      for (const Use& use : uses->second) {
        if (const auto r = relations_.made.find(use.target);
            !use.is_input && r != relations_.made.end() && r->second.has_index()) {
          for (const Name& name : r->second.sources) add(at(record_of(name), frame.step, frame.micro_batch));
        }
        if (const LogicalTensor* recorded =
                recorded_gradient({reference_, reference_calls_}, use.target, frame)) {
          found.push_back(recorded);
        } else if (relations_.uses.contains(use.target)) {
          values.push_back(use.target);
        } else {
          LogicalTensor wanted = t;
          wanted.id = gradient_of(use.target, frame);
          for (const RecordedCall& call : reference_calls_.producers(wanted)) {
            for (const RecordedCall::Input& input : call.inputs) add(input.tensor->id);
          }
        }
      }
    }
  };
  if (t.id.micro_batch < 0) {
    if (const auto scalar = scalars_.made(reference_, t.id)) {
      for (const Identity& id : scalar->sources) add(id);
      return found;
    }
    if (const Name param = parameter_of(t.id); t.id.slot == "grad" && relations_.uses.contains(param)) {
      Identity frame = t.id;
      for (const std::int64_t micro_batch :
           micro_batches_of({reference_, reference_calls_}, param, t.id.step)) {
        frame.micro_batch = micro_batch;
        add_gradients(param, frame);
      }
    }
    Identity source = t.id;
    if (t.id.slot == "grad" && !t.id.arg.ends_with(unreduced)) {
      source.arg += unreduced;
    } else if (t.id.phase == Phase::forward && t.id.step > 0) {
      --source.step;
      source.phase = Phase::optimizer;
    } else if (t.id.phase == Phase::optimizer && t.id.slot == "param") {
      source.slot = "state";
      source.arg += ".master";
    }
    if (source != t.id) add(source);
    return found;
  }
  if (t.id.slot == "loss" && !relations_.made.contains(name_of(t.id))) {
    if (const auto value = hidden_.value(reference_, reference_calls_, t.id)) found = value->sources;
    return found;
  }
  if (t.id.phase == Phase::forward) {
    const Relation* r = relation_of(t.id);
    if (r == nullptr) return found;
    for (const Name& name : r->sources) add(at(record_of(name), t.id.step, t.id.micro_batch));
    return found;
  }
  if (is_gradient(t.id)) add_gradients(value_of(t.id), t.id);
  return found;
}

}  // namespace assay
