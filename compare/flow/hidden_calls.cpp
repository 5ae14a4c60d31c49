#include "assay/compare/flow/hidden_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/flow/found_operators.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

constexpr std::size_t most_values = 6;      // for an argument: the latest, as a layer makes them
constexpr std::size_t most_calls = 1 << 8;  // that are tried: all orders of the values for three arguments

}  // namespace

bool HiddenCalls::find(const LogicalTensor& t, const SideTensor& values, Relations& found) const {
  if (!shows_call(values, static_cast<double>(most_calls * operators().size()))) return false;
  for (const Operator* op : operators()) {
    for (const auto names : {op->functional_inputs, op->functional_instead}) {
      if (!names.empty() && find_of(*op, names, t, found)) return true;
    }
  }
  return false;
}

bool HiddenCalls::find_of(const Operator& op, std::span<const std::string_view> names, const LogicalTensor& t,
                          Relations& found) const {
  const auto output = std::ranges::find(op.args, Role::output, &Arg::role);
  std::vector<const Arg*> inputs, required;
  for (const std::string_view name : names) inputs.push_back(&input_arg(op, name));
  std::ranges::copy_if(inputs, std::back_inserter(required), [](const Arg* arg) { return !arg->optional; });
  std::map<std::string_view, std::int64_t> extents;
  if (!fits(output->shape, t.shape, extents)) return false;
  std::vector<Given> all;
  for (const auto* given : {&required, &inputs}) {
    std::vector<Given> calls;
    Given none;
    if (given == &inputs ? required.size() < inputs.size() : !required.empty())
      assign(op, *given, t, none, calls);
    all.insert(all.end(), calls.begin(), calls.end());
  }
  LogicalTensor result = t;
  result.id.module = fmt::format("{}.{}", module_around(t.id.module), op.name);
  for (const Given& g : all) {
    RecordedCall call{&op, std::string(output->name), {}};
    for (const auto& [arg, c] : g) call.inputs.push_back({std::string(arg->name), candidates_[c].tensor});
    if (!makes_(call, result)) continue;
    take(op, *output, g, t, found);
    return true;
  }
  return false;
}

// What its own operator calls so; else what has no gradient where the argument has none, as tables; else the
// latest.
std::vector<std::size_t> HiddenCalls::candidates_for(const Operator& op, const Arg& arg,
                                                     const LogicalTensor& t) const {
  std::vector<std::size_t> near = candidates_.near(t, [](const LogicalTensor&) { return true; });
  const auto among = [&](auto is_one) {
    std::vector<std::size_t> some;
    std::ranges::copy_if(near, std::back_inserter(some), is_one);
    return some;
  };
  std::vector<std::size_t> some = among([&](std::size_t c) { return is_result_of(c, arg); });
  if (some.empty() && find_arg(op, fmt::format("grad_{}", arg.name)) == nullptr)
    some = among([&](std::size_t c) { return !has_gradient(*candidates_[c].tensor); });
  return some.empty() ? near : some;
}

bool HiddenCalls::has_gradient(const LogicalTensor& t) const {
  return std::ranges::any_of(calls_.around(t),
                             [](const LogicalTensor* other) { return other->id.phase == Phase::backward; });
}

bool HiddenCalls::is_result_of(std::size_t candidate, const Arg& arg) const {
  const LogicalTensor& t = *candidates_[candidate].tensor;
  if (candidates_[candidate].name.slot != "output") return false;
  const std::vector<RecordedCall> made_by = calls_.producers(t);
  return made_by.size() == 1 && made_by.front().output == arg.name;
}

void HiddenCalls::assign(const Operator& op, const std::vector<const Arg*>& inputs, const LogicalTensor& t,
                         Given& given, std::vector<Given>& all) const {
  if (given.size() == inputs.size()) {
    if (may_make(op, given, t.shape)) all.push_back(given);
    return;
  }
  const Arg& arg = *inputs[given.size()];
  std::size_t tried = 0;
  for (const std::size_t c : candidates_for(op, arg, t)) {
    if (tried == most_values || all.size() == most_calls) return;
    if (std::ranges::find(given, c, &Given::value_type::second) != given.end()) continue;
    std::map<std::string_view, std::int64_t> extents;
    const auto output = std::ranges::find(op.args, Role::output, &Arg::role);
    bool is_possible = fits(output->shape, t.shape, extents);
    for (const auto& [other, k] : given)
      is_possible = is_possible && fits(other->shape, candidates_[k].tensor->shape, extents);
    if (!is_possible || !fits(arg.shape, candidates_[c].tensor->shape, extents)) continue;
    ++tried;
    given.emplace_back(&arg, c);
    assign(op, inputs, t, given, all);
    given.pop_back();
  }
}

bool HiddenCalls::may_make(const Operator& op, const Given& given, const Shape& result) const {
  if (op.may_make == nullptr) return true;
  std::vector<InputShape> shapes;
  for (const auto& [arg, c] : given) shapes.push_back({std::string(arg->name), candidates_[c].tensor->shape});
  return op.may_make(shapes, result);
}

void HiddenCalls::take(const Operator& op, const Arg& output, const Given& given, const LogicalTensor& t,
                       Relations& found) const {
  HiddenCall call{&op,
                  fmt::format("{}.{}", module_around(t.id.module), op.name),
                  {},
                  std::string(output.name),
                  name_of(t.id)};
  for (const auto& [arg, c] : given) {
    Name input = call.result;
    input.module = call.module;
    input.slot = "input";
    input.arg = arg->name;
    const Name& source = candidates_[c].name;
    call.inputs.push_back({input, source});
    found.made[input] = {.sources = {source}};
    found.uses[source].push_back({input, true, 0});
  }
  found.hidden.push_back(std::move(call));
}

}  // namespace assay
