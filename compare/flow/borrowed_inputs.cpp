#include "assay/compare/flow/borrowed_inputs.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace assay {
namespace {

bool is_given(const RecordedCall& call, const Arg& arg) {
  return std::ranges::find(call.inputs, arg.name, &RecordedCall::Input::name) != call.inputs.end();
}

// Of the call that makes a result.
Name input_of(const LogicalTensor& result, const Arg& arg) {
  Name input = name_of(result.id);
  input.slot = "input";
  input.arg = arg.name;
  return input;
}

}  // namespace

// With all inputs, or with those that can be borrowed from values before it.
bool BorrowedInputs::is_of_operator(const LogicalTensor& t, Relations& found) const {
  const auto made_by = calls_.producers(t);
  if (made_by.size() != 1) return !made_by.empty();
  const RecordedCall& call = made_by.front();
  std::vector<const Arg*> absent;
  bool lacks = false, has_input = false;
  for (const Arg& arg : call.op->args) {
    if (arg.role != Role::input) continue;
    const bool is_there = is_given(call, arg);
    has_input = has_input || is_there;
    if (is_there) continue;
    lacks = lacks || !arg.optional;
    absent.push_back(&arg);
  }
  if (const Arg* arg = call.lacking(Role::param)) return borrows_parameter(call, *arg, t, found);
  if (const Arg* arg = call.lacking(Role::index))
    return borrows(call, *arg, calls_.indices_around(t), t, found);
  if (absent.empty() || (!lacks && has_input)) return true;
  // Two calls that were recorded as one, as rope of q and of k: each input has the name of its result.
  const auto results = std::ranges::count_if(calls_.around(t), [&](const LogicalTensor* other) {
    return other->id.slot == "output" && other->id.phase == Phase::forward && is_float(other->dtype);
  });
  const bool has_twins = results > 1 && absent.size() == 1 && !call.op->fused_by_name;
  for (const auto& given : borrowable(absent, t)) {
    RecordedCall whole = call;
    for (const auto& [arg, c] : given)
      whole.inputs.push_back({std::string(arg->name), candidates_[c].tensor});
    if (!makes_(whole, t)) continue;
    for (const auto& [arg, c] : given) {
      Name input = name_of(t.id);
      input.slot = "input";
      input.arg = has_twins ? t.id.arg : std::string(arg->name);
      const Name& source = candidates_[c].name;
      found.borrowed.push_back({input, source});
      found.made[input] = {.sources = {source}};
      found.uses[source].push_back({input, true, 0});
    }
    return true;
  }
  return false;
}

// One of another module: a tied embedding. Its bias may be another module's, too.
bool BorrowedInputs::borrows_parameter(const RecordedCall& call, const Arg& arg, const LogicalTensor& t,
                                       Relations& found) const {
  const auto parameters = parameters_.find(t.id.step);
  if (parameters == parameters_.end() || t.shape.empty()) return false;
  std::vector<const LogicalTensor*> fitting;
  std::ranges::copy_if(parameters->second, std::back_inserter(fitting), [&](const LogicalTensor* param) {
    return std::ranges::find(param->shape, t.shape.back()) != param->shape.end();
  });
  if (borrows(call, arg, fitting, t, found)) return true;
  for (const Arg& other : call.op->args) {
    if (other.role != Role::param || !other.optional || is_given(call, other)) continue;
    for (const LogicalTensor* bias : fitting) {
      if (bias->shape != Shape{t.shape.back()}) continue;
      RecordedCall with_bias = call;
      with_bias.inputs.push_back({std::string(other.name), bias});
      if (!borrows(with_bias, arg, fitting, t, found)) continue;
      found.borrowed.push_back({input_of(t, other), name_of(bias->id)});
      return true;
    }
  }
  return false;
}

// The first that makes the result.
bool BorrowedInputs::borrows(const RecordedCall& call, const Arg& arg,
                             const std::vector<const LogicalTensor*>& among, const LogicalTensor& t,
                             Relations& found) const {
  const auto source = std::ranges::find_if(among, [&](const LogicalTensor* candidate) {
    RecordedCall whole = call;
    whole.inputs.push_back({std::string(arg.name), candidate});
    return makes_(whole, t);
  });
  if (source == among.end()) return false;
  found.borrowed.push_back({input_of(t, arg), name_of((*source)->id)});
  return true;
}

// Values that are called as the arguments are, in the nearest module, the fewest arguments first; for a
// lone input any value, the latest first.
std::vector<BorrowedInputs::Given> BorrowedInputs::borrowable(const std::vector<const Arg*>& absent,
                                                              const LogicalTensor& t) const {
  constexpr std::size_t most = 8, most_arguments = 6;
  Given named;
  for (const Arg* arg : absent) {
    if (named.size() == most_arguments) break;
    candidates_.for_each_near(
        t, [&](const EarlierValues::Kind& kind) { return kind.arg == arg->name; },
        [&](std::size_t c) {
          named.emplace_back(arg, c);
          return false;
        });
  }
  const auto is_required = [](const Arg* arg) { return !arg->optional; };
  const auto required = static_cast<std::size_t>(std::ranges::count_if(absent, is_required));
  std::vector<Given> all;
  for (std::uint32_t subset = 1; subset < 1U << named.size(); ++subset) {
    Given given;
    for (std::size_t k = 0; k < named.size(); ++k) {
      if ((subset >> k & 1U) != 0) given.push_back(named[k]);
    }
    const auto in_it = std::ranges::count_if(given, [&](const auto& g) { return is_required(g.first); });
    if (static_cast<std::size_t>(in_it) == required) all.push_back(std::move(given));
  }
  std::ranges::stable_sort(all, {}, &Given::size);
  if (required > 1) return all;
  const auto lone = std::ranges::find_if(absent, is_required);
  const Arg* arg = lone != absent.end() ? *lone : absent.front();
  std::size_t latest = 0;
  candidates_.for_each_near(
      t, [](const EarlierValues::Kind&) { return true; },
      [&](std::size_t c) {
        all.push_back({{arg, c}});
        return ++latest < most;
      });
  return all;
}

}  // namespace assay
