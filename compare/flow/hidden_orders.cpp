// Which of several values was given for which argument of a call in no module.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/flow/hidden_calls.h"

namespace assay {
namespace {

// The recorded gradient of a value, under the name that it has there.
const LogicalTensor* gradient_of(const LogicalTensor& value, const RecordedCalls& calls) {
  const std::string_view slot = value.id.slot == "input" ? "grad_input" : "grad_output";
  const std::vector<const LogicalTensor*> around = calls.around(value);
  const auto found = std::ranges::find_if(around, [&](const LogicalTensor* t) {
    return t->id.slot == slot && t->id.arg == value.id.arg && t->shape == value.shape;
  });
  return found == around.end() ? nullptr : *found;
}

}  // namespace

// Those in which all values are near come first: with one argument far away others need not be.
std::vector<HiddenCalls::Given> HiddenCalls::assigned(const Sought& sought,
                                                      const std::vector<const Arg*>& inputs,
                                                      const Form* known) const {
  Assignment calls{sought, inputs, known, {}, {}};
  for (std::size_t rank = 0; rank <= inputs.size() * (most_values - 1); ++rank) {
    Given none;
    assign(calls, none, rank);
  }
  return std::move(calls.all);
}

// What may be given for the next argument, the nearest first; which it is follows from the shapes before.
const std::vector<HiddenCalls::Source>& HiddenCalls::sources(Assignment& calls, const Given& given) const {
  std::vector<Shape> before;
  for (const auto& [arg, source] : given) before.push_back(source.tensor->shape);
  const auto [known, is_new] = calls.sources.try_emplace(std::move(before));
  std::vector<Source>& all = known->second;
  if (!is_new) return all;
  const auto& [op, attributes, t] = calls.sought;
  const Arg& arg = *calls.inputs[given.size()];
  std::map<std::string_view, std::int64_t> extents;
  bool is_possible = assay::fits(sought_output(op, t)->shape, t.shape, extents);
  for (const auto& [other, taken] : given)
    is_possible =
        is_possible && assay::fits(shape_letters(op, *other, attributes), taken.tensor->shape, extents);
  if (!is_possible) return all;
  const auto fits = [&](const Shape& shape) {
    auto own = extents;
    return assay::fits(shape_letters(op, arg, attributes), shape, own) &&
           goes_with(op, given, {std::string(arg.name), shape});
  };
  for_each_source(calls.sought, arg, calls.known, fits, [&](const Source& source) {
    all.push_back(source);
    return all.size() < most_values + given.size();
  });
  return all;
}

// @param rank  how many nearer values there are, for all arguments together
void HiddenCalls::assign(Assignment& calls, Given& given, std::size_t rank) const {
  if (given.size() == calls.inputs.size()) {
    if (may_make(calls.sought.op, given, calls.sought.result.shape)) calls.all.push_back(given);
    return;
  }
  const bool is_last = given.size() + 1 == calls.inputs.size();
  std::size_t nearer = 0;
  for (const Source& source : sources(calls, given)) {
    if (nearer > rank || nearer == most_values || calls.all.size() == most_calls) return;
    if (std::ranges::any_of(given, [&](const auto& g) { return g.second.tensor == source.tensor; })) continue;
    if (!is_last || nearer == rank) {
      given.emplace_back(calls.inputs[given.size()], source);
      assign(calls, given, rank - nearer);
      given.pop_back();
    }
    ++nearer;
  }
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

RecordedCall HiddenCalls::call_of(const Sought& sought, const Given& given) {
  RecordedCall call{&sought.op, std::string(sought_output(sought.op, sought.result)->name), {}};
  for (const auto& [arg, source] : given) call.inputs.push_back({std::string(arg->name), source.tensor});
  return call;
}

LogicalTensor HiddenCalls::as_result(const Sought& sought, const LogicalTensor& t) {
  LogicalTensor result = t;
  result.id.module = fmt::format("{}.{}", module_around(sought.result.id.module), sought.op.name);
  return result;
}

// How many of the arguments have the gradient that was recorded for what they were given.
std::ptrdiff_t HiddenCalls::gradients_made(const Sought& sought, const Given& given) const {
  const LogicalTensor* of_result = gradient_of(sought.result, calls_);
  if (of_result == nullptr) return 0;
  RecordedCall call = call_of(sought, given);
  call.inputs.push_back({fmt::format("grad_{}", call.output), of_result});
  return std::ranges::count_if(given, [&](const auto& g) {
    call.output = fmt::format("grad_{}", g.first->name);
    const LogicalTensor* handed_back = gradient_of(*g.second.tensor, calls_);
    return find_arg(sought.op, call.output) != nullptr && handed_back != nullptr &&
           makes_(call, as_result(sought, *handed_back));
  });
}

// A result that hardly depends on two arguments, as attention's on scores near 0, does not tell which is
// which: their gradients do.
HiddenCalls::Given HiddenCalls::in_right_order(const Sought& sought, Given given) const {
  for (std::size_t a = 0; a < given.size(); ++a) {
    for (std::size_t b = a + 1; b < given.size(); ++b) {
      if (given[a].second.tensor->shape != given[b].second.tensor->shape) continue;
      Given other = given;
      std::swap(other[a].second, other[b].second);
      if (makes_(call_of(sought, other), as_result(sought, sought.result)) &&
          gradients_made(sought, other) > gradients_made(sought, given))
        given = std::move(other);
    }
  }
  return given;
}

}  // namespace assay
