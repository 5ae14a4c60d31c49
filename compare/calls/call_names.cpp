#include "assay/compare/calls/call_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace assay {
namespace {

using TensorList = CallNames::TensorList;

TensorList in_slot(const TensorList& call, std::string_view slot) {
  TensorList result;
  std::ranges::copy_if(call, std::back_inserter(result),
                       [&](const LogicalTensor* t) { return t->id.slot == slot; });
  return result;
}

const LogicalTensor* with_arg(const TensorList& call, std::string_view arg) {
  const auto found = std::ranges::find_if(call, [&](const LogicalTensor* t) { return t->id.arg == arg; });
  return found == call.end() ? nullptr : *found;
}

constexpr std::string_view weight_suffix = "_weight";

// "gate_weight" makes "gate" of a fused projection; a lone weight makes whatever the result is called. Where
// that is not known, any of them does: they share the input width.
const LogicalTensor* weight_of(const TensorList& params, std::string_view result) {
  if (const LogicalTensor* own = with_arg(params, std::string(result).append(weight_suffix))) return own;
  if (const LogicalTensor* lone = with_arg(params, "weight"); lone != nullptr || !result.empty()) return lone;
  const auto any =
      std::ranges::find_if(params, [](const LogicalTensor* t) { return t->id.arg.ends_with(weight_suffix); });
  return any == params.end() ? nullptr : *any;
}

std::string without_suffix(const std::string& arg) {
  constexpr std::string_view suffix = ".unreduced";
  return arg.ends_with(suffix) ? arg.substr(0, arg.size() - suffix.size()) : arg;
}

// "gate" of "gate_weight": the result of a fused projection that only this parameter makes; "" if all do.
std::string_view own_result(std::string_view param) {
  return param.ends_with(weight_suffix) ? param.substr(0, param.size() - weight_suffix.size())
                                        : std::string_view();
}

}  // namespace

const Operator* recorded_operator(std::string_view name) {
  if (const Operator* op = known_operator(name)) return op;
  constexpr std::string_view method = "torch.Tensor.", mark = "__";
  if (!name.starts_with(method)) return known_operator(std::string("torch.nn.").append(name));
  name.remove_prefix(method.size());
  if (name.starts_with(mark) && name.ends_with(mark) && name.size() > 2 * mark.size())
    name = name.substr(mark.size(), name.size() - 2 * mark.size());
  return known_operator(std::string("torch.").append(name));
}

const Operator* operator_within(const Operator& op, const TensorList& call, const LogicalTensor& t,
                                const ResultOrder& order) {
  for (const MadeWithin& row : op.made_within) {
    const auto is_it = [&](const LogicalTensor* made) {
      return made->id.slot == "output" && declared_result(op, made->id.arg, order) == row.arg;
    };
    if (std::ranges::none_of(call, is_it)) continue;
    const std::string arg = without_suffix(t.id.arg);
    const bool belongs = t.id.slot == "output" ? declared_result(op, t.id.arg, order) == row.arg
                                               : find_arg(op, declared_name(op, arg)) == nullptr;
    if (belongs) return known_operator(row.by);
  }
  return nullptr;
}

const Operator* CallNames::operator_of(const TensorList& call, const TensorList& module) {
  for (const LogicalTensor* t : call) {
    if (t->op.empty()) continue;
    const Operator* op = recorded_operator(t->op);
    if (op == nullptr) return nullptr;
    const TensorList inputs = in_slot(call, "input");
    const auto given = static_cast<std::size_t>(
        std::ranges::count_if(inputs, [](const LogicalTensor* i) { return is_float(i->dtype); }));
    // A class of the same name that has its own modules make what the operator takes: "Attention" of most
    // models.
    if (t->within && given < required_args(*op, Role::input)) return nullptr;
    if (op->with_parameter.empty()) return op;
    const Operator* other = known_operator(op->with_parameter);
    // A product of one recorded input has a parameter, if not its own: that of a tied embedding.
    const bool is_other = !in_slot(module, "param").empty() || given < required_args(*op, Role::input) ||
                          with_arg(inputs, first_arg(*other, Role::param).name) != nullptr;
    return is_other ? other : op;
  }
  return nullptr;
}

CallNames::CallNames(const Operator& op, const TensorList& call, const TensorList& module, ResultOrder order)
    : op_(op),
      order_(std::move(order)),
      inputs_(in_slot(call, "input")),
      outputs_(in_slot(call, "output")),
      gradients_(in_slot(call, "grad_output")),
      params_(in_slot(module, "param")),
      states_(in_slot(module, "state")) {
  name_positions();
  name_parameters();
  pair_twins();
}

std::optional<RecordedCall> CallNames::forward(const std::string& arg) const {
  std::string_view declared = output_name(arg);
  // A loss that knows its own gradient may give it forward.
  if (const Arg* given = find_arg(op_, arg);
      declared.empty() && given != nullptr && given->role == Role::grad_input)
    declared = given->name;
  if (declared.empty()) return std::nullopt;
  RecordedCall call{&op_, std::string(declared), {}};
  add_inputs(call, arg);
  return call;
}

std::optional<std::vector<RecordedCall>> CallNames::backward(const LogicalTensor& gradient) const {
  const std::string output = gradient_name(gradient);
  if (find_arg(op_, output) == nullptr) return std::nullopt;
  std::vector<RecordedCall> calls;
  for (const std::string& arg : results_behind(gradient)) {
    const std::string handed_back = gradient_of_result(arg);
    if (handed_back.empty()) return std::nullopt;
    RecordedCall call{&op_, output, {}};
    add_inputs(call, arg);
    if (const LogicalTensor* t = with_arg(gradients_, arg)) call.inputs.push_back({handed_back, t});
    calls.push_back(std::move(call));
  }
  return together(std::move(calls));
}

// An optional gradient is none of a call of its own: attention has those of its result and its weights at
// once.
std::vector<RecordedCall> CallNames::together(std::vector<RecordedCall> calls) {
  const auto starts_alone = [&](const RecordedCall& call) {
    return call.lacking(Role::grad_output) == nullptr;
  };
  const auto whole = std::ranges::find_if(calls, starts_alone);
  if (whole == calls.end()) return calls;
  RecordedCall all = *whole;
  for (const RecordedCall& call : calls) {
    if (!starts_alone(call)) all.inputs.push_back(call.inputs.back());
  }
  std::vector<RecordedCall> left = {std::move(all)};
  std::copy_if(whole + 1, calls.end(), std::back_inserter(left), starts_alone);
  return left;
}

// What the operator calls the gradient of a result: "grad_y". A loss has one only, under whatever name.
std::string CallNames::gradient_of_result(std::string_view recorded) const {
  const std::string own = std::string("grad_").append(recorded);
  if (const Arg* arg = find_arg(op_, own); arg != nullptr && arg->role == Role::grad_output) return own;
  const std::string_view result = output_name(recorded);
  if (result.empty()) return "";
  std::string named = std::string("grad_").append(result);
  if (find_arg(op_, named) != nullptr) return named;
  const bool is_alone = std::ranges::count(op_.args, Role::grad_output, &Arg::role) == 1;
  return is_alone ? std::string(first_arg(op_, Role::grad_output).name) : "";
}

// What the operator calls the gradient of an input or a parameter: "grad_x".
std::string CallNames::gradient_name(const LogicalTensor& gradient) const {
  const std::string param = without_suffix(gradient.id.arg);
  if (gradient.id.slot != "grad_input") {
    const std::string_view name = declared_name(op_, param);
    if (find_arg(op_, name) == nullptr && op_.fused_by_name) return "grad_" + std::string(weight().name);
    const auto placed = std::ranges::find_if(
        parameters_, [&](const RecordedCall::Input& p) { return p.tensor->id.arg == param; });
    return "grad_" + (placed == parameters_.end() ? std::string(name) : placed->name);
  }
  const auto numbered = std::ranges::find(
      positions_, param, [](const RecordedCall::Input& p) -> std::string_view { return p.tensor->id.arg; });
  if (numbered != positions_.end()) return "grad_" + numbered->name;
  const std::string named = std::string("grad_").append(declared_name(op_, param));
  const bool is_named = find_arg(op_, named) != nullptr || required_args(op_, Role::input) != 1;
  const Arg* given = find_arg(op_, declared_name(op_, param));
  const bool is_parameter = given != nullptr && given->role == Role::param;  // that was given as a value
  if (is_named && (!op_.fused_by_name || is_parameter)) return named;
  return "grad_" + std::string(first_arg(op_, Role::input).name);
}

// The forward results, as they were recorded, whose gradients make this one.
std::vector<std::string> CallNames::results_behind(const LogicalTensor& gradient) const {
  const bool is_grad_input = gradient.id.slot == "grad_input";
  const std::string own(op_.fused_by_name && !is_grad_input ? own_result(without_suffix(gradient.id.arg))
                                                            : std::string_view());
  if (gradients_.empty()) return {own};
  const auto is_made_within = [&](const LogicalTensor& t) {
    return std::ranges::find(op_.made_within, declared(t), &MadeWithin::arg) != op_.made_within.end();
  };
  const bool has_twin =
      is_grad_input && with_arg(gradients_, gradient.id.arg) != nullptr && !is_made_within(gradient);
  std::vector<std::string> results;
  for (const auto& [result, input] : twins_) {
    if (is_grad_input && input->id.arg == gradient.id.arg) return {result->id.arg};
  }
  for (const LogicalTensor* t : gradients_) {
    if (!own.empty() && t->id.arg != own) continue;
    // What the call made for itself is no result that hands a gradient back.
    if (is_made_within(*t)) continue;
    // The gradient of what was turned in the same call under another name is not that of this input.
    if (!has_twin || t->id.arg == gradient.id.arg) results.push_back(t->id.arg);
  }
  return results;
}

std::string_view CallNames::output_name(std::string_view recorded) const {
  const std::string_view name = declared_result(op_, recorded, order_);
  const Arg* arg = find_arg(op_, name);
  if (arg != nullptr && is_output(arg->role)) return name;
  // Of an operator with one result the recorder's name for it does not matter.
  const bool is_alone =
      with_arg(inputs_, recorded) != nullptr || inputs_.empty() || outputs_.size() <= 1 ||
      op_.fused_by_name ||
      std::ranges::any_of(twins_, [&](const auto& twin) { return twin.first->id.arg == recorded; });
  return is_alone ? std::ranges::find_if(op_.args, is_output, &Arg::role)->name : std::string_view();
}

// The recorded input that the operator calls `arg`.
const LogicalTensor* CallNames::input(const Arg& arg, std::string_view result) const {
  if (const LogicalTensor* named = named_input(arg, result)) return named;
  const auto found = std::ranges::find(positions_, arg.name, &RecordedCall::Input::name);
  return found == positions_.end() ? nullptr : found->tensor;
}

const LogicalTensor* CallNames::named_input(const Arg& arg, std::string_view result) const {
  if (op_.fused_by_name && arg.name == weight().name) {
    if (const LogicalTensor* given = with_arg(inputs_, arg.name)) return given;  // of another module
    if (const LogicalTensor* own = weight_of(params_, result)) return own;
  }
  for (const TensorList* call : {&inputs_, &params_, &states_}) {
    for (const LogicalTensor* t : *call) {
      if (declared_name(op_, t->id.arg) == arg.name && may_have(arg, t->shape)) return t;
    }
  }
  const auto placed = std::ranges::find(parameters_, arg.name, &RecordedCall::Input::name);
  if (placed != parameters_.end()) return placed->tensor;
  // What a call made of its own choice does not depend on how it chose.
  const Arg* made = find_arg(op_, output_name(result));
  const auto choice = std::ranges::find_if(
      op_.recorded_as, [&](const RecordedAs& row) { return row.arg == arg.name && is_own_result(op_, row); });
  if (made != nullptr && made->role == Role::output && choice != op_.recorded_as.end()) {
    const auto index =
        std::ranges::find_if(outputs_, [&](const LogicalTensor* t) { return declared(*t) == choice->name; });
    if (index != outputs_.end()) return *index;
  }
  // A router records its logits as a result of its own.
  if (arg.role == Role::input) {
    const auto made =
        std::ranges::find_if(outputs_, [&](const LogicalTensor* t) { return declared(*t) == arg.name; });
    if (made != outputs_.end()) return *made;
  }
  if (arg.optional || required_args(op_, arg.role) != 1) return nullptr;
  if (arg.role != Role::input && arg.role != Role::index) return nullptr;
  // rope turns q and k in two calls that were recorded as one: the result has the input's name.
  if (const LogicalTensor* same = with_arg(inputs_, result); same != nullptr && arg.role == Role::input)
    return same;
  for (const auto& [twin, given] : twins_) {
    if (twin->id.arg == result && arg.role == Role::input) return given;
  }
  // Beside it may lie what was lent to the call under the operator's own name, as a tied embedding's weight.
  TensorList unnamed;
  std::ranges::copy_if(inputs_, std::back_inserter(unnamed), [&](const LogicalTensor* t) {
    return find_arg(op_, declared_name(op_, t->id.arg)) == nullptr;
  });
  const bool is_lone = unnamed.size() == 1 && is_float(unnamed.front()->dtype) == (arg.role == Role::input);
  return is_lone ? unnamed.front() : nullptr;
}

void CallNames::add_inputs(RecordedCall& call, std::string_view result) const {
  for (const Arg& arg : op_.args) {
    if (arg.role != Role::input && arg.role != Role::param && arg.role != Role::index) continue;
    if (is_list(arg))
      add_members(call, arg);
    else if (const LogicalTensor* t = input(arg, result))
      call.inputs.push_back({std::string(arg.name), t});
  }
}

void CallNames::add_members(RecordedCall& call, const Arg& list) const {
  std::map<std::int64_t, const LogicalTensor*> members;
  for (const LogicalTensor* t : inputs_) {
    if (const auto number = member_number(list, declared_name(op_, t->id.arg)))
      members.try_emplace(*number, t);
  }
  for (const auto& [number, t] : members)
    call.inputs.push_back({std::string(declared_name(op_, t->id.arg)), t});
}

}  // namespace assay
