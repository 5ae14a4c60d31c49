#include "assay/compare/flow/hidden_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/calls/recorded_call.h"
#include "assay/compare/flow/found_operators.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/padding_mask.h"

namespace assay {
namespace {

constexpr std::size_t most_values = 6;  // for an argument: the latest, as a layer makes them
// A search for nothing takes seconds: what no call makes in two places none makes in other layers.
constexpr int most_failures = 2;
constexpr std::size_t most_calls = 1 << 8;  // that are tried: all orders of the values for three arguments

using Arguments = std::vector<const Arg*>;

// The arguments that may be given together: those that are required, or all values, each with or without the
// parameters. Tables, which have no gradient, first: a program that has some uses them.
std::vector<Arguments> arguments_but_masks(const Operator& op) {
  std::vector<Arguments> all;
  for (const auto names : {op.functional_inputs, op.functional_instead}) {
    Arguments required, values, params;
    for (const std::string_view name : names) {
      const Arg& arg = input_arg(op, name);
      if (!arg.hides) (arg.role == Role::param ? params : values).push_back(&arg);
    }
    std::ranges::copy_if(values, std::back_inserter(required), [](const Arg* arg) { return !arg->optional; });
    const bool has_tables = std::ranges::any_of(values, [&](const Arg* arg) {
      return arg->optional && find_arg(op, fmt::format("grad_{}", arg->name)) == nullptr;
    });
    for (const Arguments& given : {has_tables ? values : required, has_tables ? required : values}) {
      for (const Arguments& and_these : {Arguments(), params}) {
        Arguments both = given;
        both.insert(both.end(), and_these.begin(), and_these.end());
        if (!given.empty() && std::ranges::find(all, both) == all.end()) all.push_back(std::move(both));
      }
    }
  }
  return all;
}

// With a mask of keys first: one that hides none in these sequences may hide some in others.
std::vector<Arguments> arguments(const Operator& op, bool has_masks) {
  std::vector<Arguments> all = arguments_but_masks(op);
  const auto mask = std::ranges::find_if(op.args, &Arg::hides);
  if (!has_masks || mask == op.args.end()) return all;
  const std::vector<Arguments> unmasked = all;
  for (Arguments& given : all) given.push_back(&*mask);
  all.insert(all.end(), unmasked.begin(), unmasked.end());
  return all;
}

// The defaults, and each flag that changes shapes; the operator infers it from them.
std::vector<Attributes> reshaping(const Operator& op) {
  std::vector<Attributes> all = {complete_attributes(op, {})};
  for (const Attribute& flag : op.attributes) {
    if (op.shape_of == nullptr || flag.initial != "false") continue;
    const Attributes set = complete_attributes(op, {{std::string(flag.name), true}});
    if (std::ranges::any_of(
            op.args, [&](const Arg& arg) { return op.shape_of(arg, set) != op.shape_of(arg, all.front()); }))
      all.push_back(set);
  }
  return all;
}

std::string without_layer(const Name& name) {
  return fmt::format("{}.{}.{}", without_numbers(name.module), name.slot, name.arg);
}

}  // namespace

HiddenCalls::Form HiddenCalls::form_of(const Operator& op, const Given& given) {
  Form form{&op, {}};
  for (const auto& [arg, source] : given)
    form.sources.push_back(fmt::format("{}={}", arg->name, without_layer(source.name)));
  return form;
}

// Layers are alike: what made the tensor of another one is tried first.
bool HiddenCalls::find(const LogicalTensor& t, const SideTensor& values, Relations& found) {
  if (!shows_call(values, static_cast<double>(most_calls * operators().size()))) return false;
  const bool has_negative = std::ranges::any_of(values.values, [](double v) { return v < 0; });
  const auto known = known_.find(without_layer(name_of(t.id)));
  const Form* form = known == known_.end() ? nullptr : &known->second;
  if (form != nullptr && find_of(*form->op, t, form, found)) return true;
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
  const auto output = std::ranges::find(op.args, Role::output, &Arg::role);
  std::map<std::string_view, std::int64_t> extents;
  if (!fits(output->shape, t.shape, extents)) return false;
  std::vector<Given> all;
  for (const Attributes& shapes : reshaping(op)) {
    const Sought sought{op, shapes, t};
    for (const Arguments& given : arguments(op, !masks_.empty())) {
      std::vector<Given> calls;
      Given none;
      assign(sought, given, none, calls);
      all.insert(all.end(), calls.begin(), calls.end());
    }
  }
  LogicalTensor result = t;
  result.id.module = fmt::format("{}.{}", module_around(t.id.module), op.name);
  for (const Given& g : all) {
    if (known != nullptr && form_of(op, g) != *known) continue;
    RecordedCall call{&op, std::string(output->name), {}};
    for (const auto& [arg, source] : g) call.inputs.push_back({std::string(arg->name), source.tensor});
    if (!makes_(call, result)) continue;
    take(call, g, t, found);
    known_.insert_or_assign(without_layer(name_of(t.id)), form_of(op, g));
    return true;
  }
  return false;
}

// Of a parameter those of the module around; else what its own operator calls so; else the latest, without a
// gradient where the argument has none: scores that hardly differ fit tables of any numbers.
void HiddenCalls::for_each_source(const Sought& sought, const Arg& arg, const Fits& fits,
                                  const std::function<bool(const Source&)>& f) const {
  if (arg.hides) return for_each_mask(fits, f);
  const LogicalTensor& t = sought.result;
  if (arg.role == Role::param) {
    LogicalTensor holder = t;
    holder.id.module = module_around(t.id.module);
    for (const LogicalTensor* param : calls_.around(holder)) {
      if (param->id.slot == "param" && fits(param->shape) && !f({param, name_of(param->id)})) return;
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
  const auto see = [&](std::size_t c) {
    if (is_table && has_gradient(c)) return true;
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
      if (takes_now(candidates_.kind_of(c)) && !see(c)) return;
    }
    bool goes_on = true;
    candidates_.for_each_near(t, takes_now, [&](std::size_t c) {
      return goes_on = std::ranges::find(beside, c) != beside.end() || see(c);
    });
    if (!goes_on) return;
  }
}

void HiddenCalls::for_each_mask(const Fits& fits, const std::function<bool(const Source&)>& f) const {
  for (const Source& mask : masks_) {
    if (fits(mask.tensor->shape) && !f(mask)) return;
  }
}

// The first that has its values: what the program was given, rather than what it made of it.
void HiddenCalls::add(const LogicalTensor& t, const SideValues& side) {
  constexpr std::size_t fewest_dims = 2;  // sequences and keys
  if (t.shape.size() < fewest_dims || t.id.slot != "input") return;
  const auto visible = [&](const LogicalTensor& one) {
    const auto tensor = side.read(one);
    return EarlierValues::has_two_values(tensor->values) ? visible_in(tensor->dtype, tensor->values)
                                                         : std::nullopt;
  };
  const auto own = visible(t);
  if (!own) return;
  const Name name = name_of(t.id);
  const auto [hides, is_new] = hides_.try_emplace(name, false);
  if (is_new) {
    hides->second = std::ranges::any_of(side.named(name), [&](const LogicalTensor* one) {
      const auto all = visible(*one);
      return all && std::ranges::find(*all, 0) != all->end() && std::ranges::find(*all, 1) != all->end();
    });
  }
  const auto is_same = [&](const Source& mask) {
    return mask.tensor->shape == t.shape && visible(*mask.tensor) == own;
  };
  if (!hides->second || std::ranges::any_of(masks_, is_same)) return;
  const auto size = [](const Source& mask) { return element_count(mask.tensor->shape); };
  const auto place = std::ranges::upper_bound(masks_, element_count(t.shape), {}, size);
  masks_.insert(place, {&t, name});
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

void HiddenCalls::assign(const Sought& sought, const std::vector<const Arg*>& inputs, Given& given,
                         std::vector<Given>& all) const {
  const auto& [op, attributes, t] = sought;
  if (given.size() == inputs.size()) {
    if (may_make(op, given, t.shape)) all.push_back(given);
    return;
  }
  const Arg& arg = *inputs[given.size()];
  std::map<std::string_view, std::int64_t> extents;
  const auto output = std::ranges::find(op.args, Role::output, &Arg::role);
  bool is_possible = assay::fits(output->shape, t.shape, extents);
  for (const auto& [other, taken] : given)
    is_possible =
        is_possible && assay::fits(shape_letters(op, *other, attributes), taken.tensor->shape, extents);
  if (!is_possible) return;
  const auto fits = [&](const Shape& shape) {
    auto own = extents;
    return assay::fits(shape_letters(op, arg, attributes), shape, own) &&
           goes_with(op, given, {std::string(arg.name), shape});
  };
  std::size_t tried = 0;
  for_each_source(sought, arg, fits, [&](const Source& source) {
    if (tried == most_values || all.size() == most_calls) return false;
    if (std::ranges::any_of(given, [&](const auto& g) { return g.second.tensor == source.tensor; }))
      return true;
    ++tried;
    given.emplace_back(&arg, source);
    assign(sought, inputs, given, all);
    given.pop_back();
    return true;
  });
}

std::vector<InputShape> HiddenCalls::shapes_of(const Given& given) {
  std::vector<InputShape> shapes;
  for (const auto& [arg, source] : given) shapes.push_back({std::string(arg->name), source.tensor->shape});
  return shapes;
}

bool HiddenCalls::may_make(const Operator& op, const Given& given, const Shape& result) {
  return op.may_make == nullptr || op.may_make(shapes_of(given), result);
}

bool HiddenCalls::goes_with(const Operator& op, const Given& before, const InputShape& next) {
  return op.goes_with == nullptr || op.goes_with(shapes_of(before), next);
}

// What it chose, recorded in the same place as what it weighs it by.
std::vector<std::pair<std::string, Name>> HiddenCalls::choices_beside(const RecordedCall& made,
                                                                      const LogicalTensor& t) const {
  std::vector<std::pair<std::string, Name>> choices;
  for (const Arg& arg : made.op->args) {
    if (arg.role != Role::output_index) continue;
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
    if (arg->hides) continue;
    if (arg->role == Role::param)
      found.shared.push_back({input, source.name});
    else
      found.uses[source.name].push_back({input, true, 0});
  }
  found.hidden.push_back(std::move(call));
}

}  // namespace assay
