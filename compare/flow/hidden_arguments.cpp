#include "assay/compare/flow/hidden_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "assay/compare/calls/declared_args.h"
#include "assay/operators/engine/binding.h"
#include "assay/operators/engine/golden.h"

namespace assay {
namespace {

// Those that are required, or all values, each with or without the optional parameters. Tables, which have no
// gradient, first: a program that has some uses them.
std::vector<Arguments> arguments_but_indices(const Operator& op) {
  std::vector<Arguments> all;
  for (const auto names : {op.functional_inputs, op.functional_instead}) {
    Arguments required, values, params;
    for (const std::string_view name : names) {
      const Arg& arg = input_arg(op, name);
      if (arg.role != Role::index) (arg.role == Role::param ? params : values).push_back(&arg);
    }
    const auto is_required = [](const Arg* arg) { return !arg->optional; };
    std::ranges::copy_if(values, std::back_inserter(required), is_required);
    const auto optional = std::ranges::stable_partition(params, is_required);
    const Arguments always(params.begin(), optional.begin());
    const bool has_tables = std::ranges::any_of(values, [&](const Arg* arg) {
      return arg->optional && find_arg(op, fmt::format("grad_{}", arg->name)) == nullptr;
    });
    for (const Arguments& given : {has_tables ? values : required, has_tables ? required : values}) {
      for (const Arguments& and_these : {always, params}) {
        Arguments both = given;
        both.insert(both.end(), and_these.begin(), and_these.end());
        if (!given.empty() && std::ranges::find(all, both) == all.end()) all.push_back(std::move(both));
      }
    }
  }
  return all;
}

}  // namespace

// With what hides keys first: what hides none in these sequences may hide some in others.
std::vector<Arguments> arguments(const Operator& op, const std::function<bool(const Arg&)>& has) {
  std::vector<Arguments> all = arguments_but_indices(op);
  for (const std::string_view name : op.functional_inputs) {
    const Arg& index = input_arg(op, name);
    if (index.role != Role::index || !has(index)) continue;
    const std::vector<Arguments> without = all;
    for (Arguments& given : all) given.push_back(&index);
    all.insert(all.end(), without.begin(), without.end());
  }
  return all;
}

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

}  // namespace assay
