#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/operator.h"

/// The arguments that an operator declares, found by what recorders have.
namespace assay {

/// Of a result, not of a gradient.
inline bool is_output(Role role) {
  return role == Role::output || role == Role::output_index;
}

/// The operator's name for what was recorded with its call; the recorded one if it has none of its own.
inline std::string_view declared_name(const Operator& op, std::string_view recorded) {
  const auto row = std::ranges::find_if(
      op.recorded_as, [&](const RecordedAs& r) { return r.module.empty() && r.name == recorded; });
  return row == op.recorded_as.end() ? recorded : row->arg;
}

/// What an operator calls the results 0, 1, .. of a call, where a class returns them in an order of its own.
using ResultOrder = std::vector<std::string_view>;

/// The operator's name for a result that was recorded with its call.
inline std::string_view declared_result(const Operator& op, std::string_view recorded,
                                        const ResultOrder& order) {
  std::size_t at = order.size();
  const char* end = recorded.data() + recorded.size();
  const bool is_number = std::from_chars(recorded.data(), end, at).ptr == end && !recorded.empty();
  return is_number && at < order.size() ? order[at] : declared_name(op, recorded);
}

/// The argument of that name, or the list with that member; nullptr if there is none.
inline const Arg* find_arg(const Operator& op, std::string_view name) {
  const auto found =
      std::ranges::find_if(op.args, [&](const Arg& a) { return a.name == name || names(a, name); });
  return found == op.args.end() ? nullptr : &*found;
}

/// The first argument of that role, which must be there.
inline const Arg& first_arg(const Operator& op, Role role) {
  return *std::ranges::find(op.args, role, &Arg::role);
}

inline std::size_t required_args(const Operator& op, Role role) {
  return static_cast<std::size_t>(
      std::ranges::count_if(op.args, [&](const Arg& a) { return a.role == role && !a.optional; }));
}

/// Whether an argument may have as many dimensions. Another operator of a module may have a parameter of that
/// name: a projection's weight is none of the loss behind it.
inline bool may_have(const Arg& arg, const Shape& shape) {
  if (arg.shape.find('*') != std::string_view::npos) return true;
  const auto dims = arg.shape.empty() ? 0 : 1 + std::ranges::count(arg.shape, ',');
  return static_cast<std::size_t>(dims) == shape.size();
}

/// Whether an index is one that the call makes itself: it is an input only if the call was told its choice.
inline bool is_own_result(const Operator& op, const RecordedAs& row) {
  const Arg* arg = row.module == made_around ? find_arg(op, row.name) : nullptr;
  return arg != nullptr && is_output(arg->role);
}

}  // namespace assay
