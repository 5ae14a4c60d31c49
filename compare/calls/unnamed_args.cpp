// Arguments that a program calls otherwise than the operator does: by numbers, or by names of its own.
#include <algorithm>
#include <iterator>

#include "assay/compare/calls/call_names.h"

namespace assay {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

// Recorders of functions number arguments: "0", "1". Their order is the operator's but for indices, which
// embedding takes first. So is that of arguments to which a class has given names of its own.
void CallNames::name_positions() {
  TensorList numbered;
  std::ranges::copy_if(inputs_, std::back_inserter(numbered),
                       [](const LogicalTensor* t) { return is_number(t->id.arg); });
  std::ranges::sort(numbered, {}, [](const LogicalTensor* t) {
    return std::pair<std::size_t, std::string_view>(t->id.arg.size(), t->id.arg);
  });
  const std::size_t required = required_args(op_, Role::input);
  if (numbered.empty() && required > 1) {
    const TensorList unnamed = unnamed_inputs();
    const auto values =
        std::ranges::count_if(inputs_, [](const LogicalTensor* t) { return is_float(t->dtype); });
    if (unnamed.size() == required && std::cmp_equal(values, required)) numbered = unnamed;
  }
  for (const bool is_index : {false, true}) {
    auto arg = op_.args.begin();
    for (const LogicalTensor* t : numbered) {
      if (is_float(t->dtype) == is_index) continue;
      arg = std::find_if(arg, op_.args.end(), [&](const Arg& a) {
        return is_index ? a.role == Role::index : a.role == Role::input || a.role == Role::param;
      });
      if (arg == op_.args.end()) break;
      positions_.push_back({std::string((arg++)->name), t});
    }
  }
}

// Values of names that the operator does not have, in the order of the call.
CallNames::TensorList CallNames::unnamed_inputs() const {
  TensorList unnamed;
  std::ranges::copy_if(inputs_, std::back_inserter(unnamed), [&](const LogicalTensor* t) {
    return is_float(t->dtype) && find_arg(op_, declared_name(op_, t->id.arg)) == nullptr;
  });
  return unnamed;
}

// Of an operator with one input and one result: as many results as inputs, each with the shape of its input.
void CallNames::pair_twins() {
  if (required_args(op_, Role::input) != 1 || op_.fused_by_name) return;
  const TensorList given = unnamed_inputs();
  TensorList made;
  std::ranges::copy_if(outputs_, std::back_inserter(made),
                       [](const LogicalTensor* t) { return is_float(t->dtype); });
  const bool are_twins =
      given.size() > 1 && std::ranges::equal(made, given, [](const auto* a, const auto* b) {
        return a->shape == b->shape && a->id.arg != b->id.arg;
      });
  for (std::size_t i = 0; are_twins && i < made.size(); ++i) twins_.emplace_back(made[i], given[i]);
}

// Programs call the parameters of their own classes as they like: those of names that the operator does not
// have are what it has beside the others, in its order. The result shows whether they are.
void CallNames::name_parameters() {
  TensorList unnamed;
  for (const LogicalTensor* t : params_) {
    const bool is_named = find_arg(op_, declared_name(op_, t->id.arg)) != nullptr;
    if (!is_named &&
        std::ranges::none_of(unnamed, [&](const LogicalTensor* other) { return other->id.arg == t->id.arg; }))
      unnamed.push_back(t);
  }
  auto arg = op_.args.begin();
  for (const LogicalTensor* t : unnamed) {
    arg = std::find_if(arg, op_.args.end(), [&](const Arg& a) {
      return a.role == Role::param && std::ranges::none_of(params_, [&](const LogicalTensor* other) {
               return declared_name(op_, other->id.arg) == a.name;
             });
    });
    if (arg == op_.args.end() || !may_have(*arg, t->shape)) return parameters_.clear();
    parameters_.push_back({std::string((arg++)->name), t});
  }
}

}  // namespace assay
