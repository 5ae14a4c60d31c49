#include "assay/compare/flow/hidden_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/found_operators.h"
#include "assay/compare/flow/hidden_arguments.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// A search for nothing takes seconds: what no call makes in two places none makes in other layers.
constexpr int most_failures = 2;

// Programs name what makes an argument after it: q of q_proj, gate of shared_expert_gate.
bool is_named_after(const Name& name, const Arg& arg) {
  const std::size_t dot = name.module.rfind('.');
  const std::string words = fmt::format("_{}_", name.module.substr(dot == std::string::npos ? 0 : dot + 1));
  std::string word = fmt::format("_{}_", arg.name);
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return words.find(word) != std::string::npos;
}

bool is_gap(const Operator& op, std::string_view output) {
  return std::ranges::any_of(op.args, [&](const Arg& arg) { return arg.gap == output; });
}

std::string without_layer(const Name& name) {
  return fmt::format("{}.{}.{}", without_numbers(name.module), name.slot, name.arg);
}

}  // namespace

HiddenCalls::Form HiddenCalls::form_of(const Operator& op, const Given& given) {
  Form form{&op, {}};
  for (const auto& [arg, source] : given) form.sources.emplace_back(arg, without_layer(source.name));
  return form;
}

// Of a choice what says by how much it was made is no result.
const Arg* HiddenCalls::sought_output(const Operator& op, const LogicalTensor& t) {
  const Role role = is_float(t.dtype) ? Role::output : Role::output_index;
  const auto found = std::ranges::find_if(op.args, [&](const Arg& arg) {
    return arg.role == role && (role == Role::output_index ? !arg.gap.empty() : !is_gap(op, arg.name));
  });
  return found == op.args.end() ? nullptr : &*found;
}

// Layers are alike: what made the tensor of another one is tried first, and what the last of them makes, for
// a norm behind them all, has another name.
bool HiddenCalls::find(const LogicalTensor& t, const SideTensor& values, Relations& found) {
  const auto tried = static_cast<double>(most_calls * operators().size());
  if (!(is_float(t.dtype) ? shows_call(values, tried) : shows_choice(values, tried))) return false;
  const bool has_negative = std::ranges::any_of(values.values, [](double v) { return v < 0; });
  const auto known = known_.find(without_layer(name_of(t.id)));
  const Form* form = known == known_.end() ? nullptr : &known->second;
  if (form != nullptr && find_of(*form->op, t, form, found)) return true;
  std::vector<Form> of_others;
  for (const auto& [name, other] : known_) {
    const bool is_new = form == nullptr || other != *form;
    if (is_new && std::ranges::find(of_others, other) == of_others.end()) of_others.push_back(other);
  }
  if (std::ranges::any_of(of_others, [&](const Form& f) { return find_of(*f.op, t, &f, found); }))
    return true;
  int& failures = failures_[fmt::format("{} {}", without_layer(name_of(t.id)), t.id.call)];
  if (failures == most_failures) return false;
  const bool is_found = std::ranges::any_of(operators(), [&](const Operator* op) {
    return !op->functional_inputs.empty() && !(op->never_negative && has_negative) &&
           find_of(*op, t, nullptr, found);
  });
  if (!is_found) ++failures;
  return is_found;
}

bool HiddenCalls::find_of(const Operator& op, const LogicalTensor& t, const Form* known, Relations& found) {
  const Arg* output = sought_output(op, t);
  std::map<std::string_view, std::int64_t> extents;
  if (output == nullptr || !fits(output->shape, t.shape, extents)) return false;
  std::vector<Given> all;
  for (const Attributes& shapes : reshaping(op)) {
    const Sought sought{op, shapes, t};
    for (const Arguments& given : arguments(op, [&](const Arg& arg) { return masks_.has(arg); })) {
      std::vector<Given> calls;
      if (known == nullptr || known->takes(given)) calls = assigned(sought, given, known);
      std::ranges::move(calls, std::back_inserter(all));
    }
  }
  const Sought sought{op, {}, t};
  for (const Given& g : all) {
    if (!makes_(call_of(sought, g), as_result(sought, t))) continue;
    const Given right = in_right_order(sought, g);
    take(call_of(sought, right), right, t, found);
    known_.insert_or_assign(without_layer(name_of(t.id)), form_of(op, right));
    return true;
  }
  return false;
}

// Of a parameter those that calls near it may take; else what its own operator calls so; else the latest,
// without a gradient where the argument has none: scores that hardly differ fit tables of any numbers.
void HiddenCalls::for_each_source(const Sought& sought, const Arg& arg, const Form* known, const Fits& fits,
                                  const std::function<bool(const Source&)>& f) const {
  const auto is_of_form = [&](const Name& name) {
    return known == nullptr || known->source(arg) == without_layer(name);
  };
  if (arg.role == Role::index) {
    return masks_.for_each(arg, [&](const KeyMasks::Mask& mask) {
      return !fits(mask.tensor->shape) || !is_of_form(mask.name) || f({mask.tensor, mask.name});
    });
  }
  const LogicalTensor& t = sought.result;
  if (arg.role == Role::param) {
    std::vector<const LogicalTensor*> near = calls_.parameters_near(t);
    std::ranges::stable_partition(near,
                                  [&](const LogicalTensor* param) { return param->id.arg == arg.name; });
    for (const LogicalTensor* param : near) {
      const Name name = name_of(param->id);
      if (fits(param->shape) && is_of_form(name) && !f({param, name})) return;
    }
    return;
  }
  using Kind = EarlierValues::Kind;
  const bool has_own =
      candidates_.is_any_near(t, [&](const Kind& kind) { return kind.result_of == arg.name; });
  const bool is_table = !has_own && find_arg(sought.op, fmt::format("grad_{}", arg.name)) == nullptr;
  const auto takes = [&](const Kind& kind) {
    return (!has_own || kind.result_of == arg.name) && fits(kind.shape);
  };
  // What is handed on, as a table from layer to layer, is one value under several names.
  std::set<const LogicalTensor*> seen;
  const auto may_be = [&](std::size_t c) {
    return is_of_form(candidates_[c].name) && !(is_table && has_gradient(c));
  };
  const auto see = [&](std::size_t c) {
    const std::vector<const LogicalTensor*> same = candidates_.same_as(c);
    if (std::ranges::any_of(same, [&](const LogicalTensor* other) { return seen.contains(other); }))
      return true;
    seen.insert(candidates_[c].tensor);
    return f({candidates_[c].tensor, candidates_[c].name});
  };
  const std::vector<std::size_t> beside = results_beside(t);
  for (const bool is_named : {true, false}) {
    const auto takes_now = [&](const Kind& kind) {
      return (kind.arg == arg.name) == is_named && takes(kind);
    };
    // Another result of the same call is nearer than what that was made of.
    for (const std::size_t c : beside) {
      if (takes_now(candidates_.kind_of(c)) && may_be(c) && !see(c)) return;
    }
    std::vector<std::size_t> near;
    candidates_.for_each_near(t, takes_now, [&](std::size_t c) {
      if (std::ranges::find(beside, c) == beside.end() && may_be(c)) near.push_back(c);
      return near.size() < most_near;
    });
    // Its name proves nothing, but is where to begin.
    std::ranges::stable_partition(near,
                                  [&](std::size_t c) { return is_named_after(candidates_[c].name, arg); });
    if (!std::ranges::all_of(near, see)) return;
  }
}

// The latest first.
std::vector<std::size_t> HiddenCalls::results_beside(const LogicalTensor& t) const {
  std::vector<std::size_t> beside;
  for (const LogicalTensor* other : t.id.slot == "output" ? calls_.around(t) : TensorList()) {
    const auto c = other->id.slot == "output" ? candidates_.find(*other) : std::nullopt;
    if (c && candidates_.rank(*c, t) >= 1) beside.push_back(*c);
  }
  std::ranges::sort(beside, std::greater<>());
  return beside;
}

// Under any of its names: what a module is given has the gradient of who made it.
bool HiddenCalls::has_gradient(std::size_t candidate) const {
  return std::ranges::any_of(candidates_.same_as(candidate), [&](const LogicalTensor* same) {
    const std::string_view slot = same->id.slot == "input" ? "grad_input" : "grad_output";
    return std::ranges::any_of(calls_.around(*same), [&](const LogicalTensor* other) {
      return other->id.slot == slot && other->id.arg == same->id.arg;
    });
  });
}

// What it chose, recorded in the same place as what it weighs it by.
std::vector<std::pair<std::string, Name>> HiddenCalls::choices_beside(const RecordedCall& made,
                                                                      const LogicalTensor& t) const {
  std::vector<std::pair<std::string, Name>> choices;
  for (const Arg& arg : made.op->args) {
    if (arg.role != Role::output_index || arg.name == made.output) continue;
    for (const LogicalTensor* beside : calls_.around(t)) {
      if (beside->id.phase != Phase::forward || beside->id.slot != t.id.slot || is_float(beside->dtype) ||
          element_count(beside->shape) != element_count(t.shape))
        continue;
      RecordedCall call{made.op, std::string(arg.name), made.inputs};
      LogicalTensor result = *beside;
      result.id.module = fmt::format("{}.{}", module_around(t.id.module), made.op->name);
      if (!makes_(call, result)) continue;
      choices.emplace_back(arg.name, name_of(beside->id));
      break;
    }
  }
  return choices;
}

// One module of its own for each call: rotary positions are applied to q and to k in the same place.
std::string HiddenCalls::module_for(const Operator& op, const Identity& result, const Relations& found) {
  std::string module;
  for (const std::string& place :
       {module_around(result.module), fmt::format("{}.{}", result.module, result.arg),
        fmt::format("{}.{}.{}", result.module, result.arg, result.call)}) {
    module = fmt::format("{}.{}", place, op.name);
    if (std::ranges::find(found.hidden, module, &HiddenCall::module) == found.hidden.end()) break;
  }
  return module;
}

void HiddenCalls::take(const RecordedCall& made, const Given& given, const LogicalTensor& t,
                       Relations& found) const {
  HiddenCall call{
      made.op, module_for(*made.op, t.id, found), {}, made.output, name_of(t.id), choices_beside(made, t)};
  for (const auto& [arg, source] : given) {
    Name input = call.result;
    input.module = call.module;
    input.slot = "input";
    input.arg = arg->name;
    call.inputs.push_back({input, source.name});
    found.made[input] = {.sources = {source.name}};
    if (arg->role == Role::index) continue;
    if (arg->role == Role::param)
      found.shared.push_back({input, source.name});
    else
      found.uses[source.name].push_back({input, true, 0});
  }
  found.hidden.push_back(std::move(call));
}

}  // namespace assay
