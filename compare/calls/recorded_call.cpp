#include "assay/compare/calls/recorded_call.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/calls/attributes_in_json.h"
#include "assay/compare/calls/call_names.h"
#include "assay/dumps/io/json.h"

namespace assay {

namespace {

// The result that a gradient is of.
LogicalTensor output_named(LogicalTensor t) {
  t.id.slot = "output";
  return t;
}

// Those that the operator has: a recorder may write down more.
Attributes recorded_attributes(const Operator& op, const std::vector<const LogicalTensor*>& call) {
  const auto has = [](const LogicalTensor* t) { return !t->attributes.empty(); };
  const auto found = std::ranges::find_if(call, has);
  if (found == call.end()) return {};
  const std::string where = to_string((*found)->id);
  const Json all = parse_json((*found)->attributes, where);
  Attributes own;
  for (const Attribute& attribute : op.attributes) {
    const std::string name(attribute.name);
    if (const Json* value = all.find(name))
      own.set(name, attribute_value(*value, fmt::format("{}: attribute '{}'", where, name)));
  }
  return own;
}

}  // namespace

bool RecordedCall::is_complete() const {
  const auto is_gradient = [](std::string_view name) { return name.starts_with("grad_"); };
  const auto starts_by_itself = [](const Arg& a) { return a.role != Role::grad_output || a.optional; };
  return !is_gradient(output) || std::ranges::any_of(inputs, is_gradient, &Input::name) ||
         std::ranges::all_of(op->args, starts_by_itself);
}

std::string without_numbers(std::string_view module) {
  std::string pattern(module);
  std::erase_if(pattern, [](char c) { return c >= '0' && c <= '9'; });
  return pattern;
}

const Arg* RecordedCall::lacking(Role role) const {
  const auto found = std::ranges::find_if(op->args, [&](const Arg& a) {
    return a.role == role && !a.optional &&
           std::ranges::none_of(inputs, [&](const Input& given) { return names(a, given.name); });
  });
  return found == op->args.end() ? nullptr : &*found;
}

std::string RecordedCall::missing() const {
  for (const Role role : {Role::input, Role::param, Role::index}) {
    if (const Arg* arg = lacking(role)) return std::string(arg->name);
  }
  return is_complete() ? "" : "the gradient of the result";
}

RecordedCalls::RecordedCalls(const std::vector<LogicalTensor>& tensors, bool gives_choices)
    : gives_choices_(gives_choices) {
  for (const LogicalTensor& t : tensors) {
    if (t.id.phase == Phase::optimizer) continue;
    if (t.id.slot == "param" || t.id.slot == "state") {
      modules_[{t.id.step, t.id.module}].push_back(&t);
    } else if (t.id.slot == "input" || t.id.slot == "output" || t.id.slot == "grad_output" ||
               t.id.slot == "grad_input") {
      const Key key{t.id.step, t.id.micro_batch, t.id.module, t.id.call};
      TensorList& call = calls_[key];
      if (call.empty()) keys_[{t.id.step, t.id.module}].push_back(key);
      call.push_back(&t);
      if (t.id.slot == "output" && !is_float(t.dtype))
        indices_[{t.id.step, t.id.micro_batch, t.id.module}].push_back(&t);
    }
  }
}

std::vector<Identity> RecordedCalls::runs_of(std::int64_t step, const std::string& module) const {
  std::vector<Identity> runs;
  const auto keys = keys_.find({step, module});
  if (keys == keys_.end()) return runs;
  for (const Key& key : keys->second)
    runs.push_back({step, std::get<1>(key), Phase::forward, module, "input", "", std::get<3>(key)});
  return runs;
}

std::string RecordedCalls::kind_of(const LogicalTensor& t) {
  return t.op.empty() ? without_numbers(t.id.module) : t.op;
}

void RecordedCalls::take_operator(const std::string& kind, Taken taken) {
  if (taken.op == nullptr)
    taken_.erase(kind);
  else
    taken_[kind] = std::move(taken);
}

RecordedCalls::Taken RecordedCalls::operator_of(const TensorList& call, const TensorList& params) const {
  const Operator* named = CallNames::operator_of(call, params);
  if (named != nullptr && has_parts_of(*named, call, params)) return {named};
  for (const LogicalTensor* t : taken_.empty() ? TensorList() : call) {
    if (const auto taken = taken_.find(kind_of(*t)); taken != taken_.end()) return taken->second;
  }
  return {};
}

bool RecordedCalls::is_own_input(const LogicalTensor& t) const {
  const auto call = calls_.find({t.id.step, t.id.micro_batch, t.id.module, t.id.call});
  if (t.id.slot != "output" || call == calls_.end()) return false;
  const auto [op, order] = operator_of(call->second, {});
  return op != nullptr && operator_within(*op, call->second, t, order) != nullptr;
}

const std::string& RecordedCalls::module_of(const LogicalTensor& t) const {
  const auto hidden = hidden_.find(t.id);
  return hidden == hidden_.end() ? t.id.module : hidden->second->id.module;
}

bool RecordedCalls::has_call(const Identity& id) const {
  return calls_.contains({id.step, id.micro_batch, id.module, id.call});
}

void RecordedCalls::lend(const LogicalTensor& tensor, const Identity& as) {
  const auto call = calls_.find({as.step, as.micro_batch, as.module, as.call});
  if (call == calls_.end()) return;
  lent_.push_back(tensor);
  lent_.back().id = as;
  lent_.back().op.clear();
  lent_.back().attributes.clear();
  call->second.push_back(&lent_.back());
}

void RecordedCalls::lend_call(const Operator& op, const std::string& module,
                              const std::vector<RecordedCall::Input>& inputs,
                              const RecordedCall::Input& result,
                              const std::vector<RecordedCall::Input>& others, const LogicalTensor* gradient,
                              const std::vector<RecordedCall::Input>& handed_back) {
  const Identity& id = result.tensor->id;
  const Key key{id.step, id.micro_batch, module, 0};
  keys_[{id.step, module}].push_back(key);
  TensorList& call = calls_[key];
  const auto add = [&](const LogicalTensor& t, Phase phase, const char* slot, const std::string& arg) {
    lent_.push_back(t);
    lent_.back().id = {id.step, id.micro_batch, phase, module, slot, arg, 0};
    lent_.back().op = op.name;
    call.push_back(&lent_.back());
  };
  for (const RecordedCall::Input& input : inputs) add(*input.tensor, Phase::forward, "input", input.name);
  if (gradient != nullptr) add(*gradient, Phase::backward, "grad_output", result.name);
  add(*result.tensor, Phase::forward, "output", result.name);
  hidden_[id] = call.back();
  for (const RecordedCall::Input& other : others) {
    add(*other.tensor, Phase::forward, "output", other.name);
    hidden_[other.tensor->id] = call.back();
  }
  for (const RecordedCall::Input& back : handed_back) {
    add(*back.tensor, Phase::backward, "grad_input", back.name);
    hidden_[back.tensor->id] = call.back();
  }
}

void RecordedCalls::lend_parameter(const LogicalTensor& param, const Identity& as) {
  const auto keys = keys_.find({param.id.step, as.module});
  if (keys == keys_.end()) return;
  for (const Key& key : keys->second) {
    Identity id = as;
    id.step = param.id.step;
    id.micro_batch = std::get<1>(key);
    id.call = std::get<3>(key);
    lend(param, id);
  }
  users_[{param.id.module, param.id.arg}].insert({as.module, as.arg, every_call});
}

std::vector<RecordedCalls::Key> RecordedCalls::keys_of(const LogicalTensor& t) const {
  if (t.id.slot != "grad" || t.id.micro_batch >= 0)
    return {{t.id.step, t.id.micro_batch, t.id.module, t.id.call}};
  const auto found = keys_.find({t.id.step, t.id.module});
  return found == keys_.end() ? std::vector<Key>() : found->second;
}

std::vector<const LogicalTensor*> RecordedCalls::around(const LogicalTensor& t) const {
  if (const auto held = held_for_around(t)) return around(*held);
  TensorList result;
  for (const Key& key : keys_of(t)) {
    if (const auto call = calls_.find(key); call != calls_.end())
      result.insert(result.end(), call->second.begin(), call->second.end());
  }
  if (const auto module = modules_.find({t.id.step, t.id.module}); module != modules_.end())
    result.insert(result.end(), module->second.begin(), module->second.end());
  return result;
}

const Operator* RecordedCalls::operator_of(const LogicalTensor& t) const {
  if (const auto held = held_for_around(t)) return operator_of(*held);
  const auto module = modules_.find({t.id.step, t.id.module});
  for (const Key& key : keys_of(t)) {
    const auto call = calls_.find(key);
    if (call == calls_.end()) continue;
    const Operator* op =
        operator_of(call->second, module == modules_.end() ? TensorList() : module->second).op;
    if (op != nullptr) return op;
  }
  return nullptr;
}

std::vector<RecordedCall> RecordedCalls::producers(const LogicalTensor& t) const {
  if (const auto hidden = hidden_.find(t.id); hidden != hidden_.end()) return producers(*hidden->second);
  const bool is_output = t.id.slot == "output";
  if (t.id.phase == Phase::optimizer || !(is_output || t.id.slot == "grad" || t.id.slot == "grad_input"))
    return {};
  std::vector<RecordedCall> result;
  bool is_known = true;
  const auto users =
      t.id.slot == "grad" ? users_.find({t.id.module, t.id.arg.substr(0, t.id.arg.find('.'))}) : users_.end();
  // A module of no operator may hold what a call within it takes: the sinks of attention.
  const bool only_holds = users != users_.end() && operator_of(t) == nullptr;
  const auto add = [&](const LogicalTensor& made, std::int64_t call = every_call) {
    const std::size_t before = result.size();
    for (const Key& key : keys_of(made)) {
      if (call == every_call || call == std::get<3>(key)) add_calls(result, made, key, is_known);
    }
    for (std::size_t i = before; i < result.size(); ++i) add_inputs_from_elsewhere(result[i], made);
  };
  if (const auto held = held_for_around(t))
    add(*held);
  else if (!only_holds)
    add(t);
  if (users != users_.end()) {
    for (const User& user : users->second) {
      LogicalTensor own = t;
      own.id.module = user.module;
      own.id.arg = user.arg;
      add(own, user.call);
    }
  }
  return is_known ? result : std::vector<RecordedCall>();
}

// The calls of one call of a module that sum to the tensor.
void RecordedCalls::add_calls(std::vector<RecordedCall>& result, const LogicalTensor& t, const Key& key,
                              bool& is_known) const {
  const auto module = modules_.find({t.id.step, t.id.module});
  static const TensorList no_params;
  const TensorList& params = module == modules_.end() ? no_params : module->second;
  const auto call = calls_.find(key);
  const Taken taken = call == calls_.end() ? Taken() : operator_of(call->second, params);
  const Operator* known = taken.op;
  const ResultOrder& order = taken.order;
  const Operator* op = known;
  if (op == nullptr) {
    is_known = false;
    return;
  }
  TensorList tensors = call->second;
  if (const Operator* within = operator_within(*op, tensors, t, order)) {
    // What the operator that it made it for makes and takes by name is none of this one's.
    std::erase_if(tensors, [&](const LogicalTensor* other) {
      if (other->id.slot == "input") return find_arg(*known, declared_name(*known, other->id.arg)) != nullptr;
      return (other->id.slot == "output" || other->id.slot == "grad_output") &&
             operator_within(*known, call->second, output_named(*other), order) == nullptr;
    });
    op = within;
  }
  const CallNames names(*op, tensors, params, op == known ? order : ResultOrder());
  const Attributes attributes = recorded_attributes(*op, tensors);
  const auto take = [&](RecordedCall made) {
    made.attributes = attributes;
    result.push_back(std::move(made));
  };
  if (t.id.slot == "output") {
    auto forward = names.forward(t.id.arg);
    is_known = is_known && forward.has_value();
    if (forward) take(std::move(*forward));
    return;
  }
  const auto backward = names.backward(t);
  // Another operator of the module, that has no such parameter: a loss beside the projection before it.
  if (!backward && t.id.slot == "grad") return;
  is_known = is_known && backward.has_value();
  if (backward) std::ranges::for_each(*backward, take);
}

}  // namespace assay
