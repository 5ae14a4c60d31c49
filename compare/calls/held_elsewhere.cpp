// What a call takes that was recorded with another module: indices that were made around it, parameters of a
// part of it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "assay/compare/calls/recorded_call.h"

namespace assay {
namespace {

std::string part_of(const std::string& module, std::string_view part) {
  return module.empty() ? std::string(part) : fmt::format("{}.{}", module, part);
}

}  // namespace

// A class of the same name may be made otherwise: without the part that holds a parameter, or it calls it.
bool RecordedCalls::has_parts_of(const Operator& op, const TensorList& call, const TensorList& params) const {
  return std::ranges::all_of(op.recorded_as, [&](const RecordedAs& row) {
    const Arg* arg = find_arg(op, row.arg);
    if (row.module.empty() || arg == nullptr || arg->role != Role::param || arg->optional) return true;
    const auto is_it = [](std::string_view name) {
      return [name](const LogicalTensor* t) { return t->id.arg == name; };
    };
    if (std::ranges::any_of(call, is_it(row.arg)) || std::ranges::any_of(params, is_it(row.arg))) return true;
    const Identity& id = call.front()->id;
    const std::string part = part_of(id.module, row.module);
    const auto held = modules_.find({id.step, part});
    return held != modules_.end() && std::ranges::any_of(held->second, is_it(row.name)) &&
           !runs(id.step, part);
  });
}

void RecordedCalls::add_from_submodule(RecordedCall& call, const RecordedAs& row,
                                       const LogicalTensor& made) const {
  const auto held = modules_.find({made.id.step, part_of(made.id.module, row.module)});
  if (held == modules_.end()) return;
  const auto found =
      std::ranges::find_if(held->second, [&](const LogicalTensor* t) { return t->id.arg == row.name; });
  if (found != held->second.end()) call.inputs.push_back({std::string(row.arg), *found});
}

// Indices are recorded by who makes them: which rows go to which expert by who permutes them.
void RecordedCalls::add_inputs_from_elsewhere(RecordedCall& call, const LogicalTensor& made) const {
  const auto is_given = [&](std::string_view arg) {
    return std::ranges::find(call.inputs, arg, &RecordedCall::Input::name) != call.inputs.end();
  };
  for (const RecordedAs& row : call.op->recorded_as) {
    if (row.module.empty() || is_given(row.arg)) continue;
    if (row.module != made_around) {
      add_from_submodule(call, row, made);
      continue;
    }
    if (is_own_result(*call.op, row) && !gives_choices_) continue;
    // A gradient of a parameter is a sum over the calls of several micro-batches.
    const std::int64_t micro_batch =
        call.inputs.empty() ? made.id.micro_batch : call.inputs.front().tensor->id.micro_batch;
    for (std::string module = made.id.module;; module.resize(module.rfind('.'))) {
      if (const auto here = indices_.find({made.id.step, micro_batch, module}); here != indices_.end()) {
        const auto found =
            std::ranges::find_if(here->second, [&](const LogicalTensor* t) { return t->id.arg == row.name; });
        if (found != here->second.end()) {
          call.inputs.push_back({std::string(row.arg), *found});
          break;
        }
      }
      if (module.rfind('.') == std::string::npos) break;
    }
  }
}

// A module that is never called may hold what the one around it takes: the projection out of attention.
std::optional<LogicalTensor> RecordedCalls::held_for_around(const LogicalTensor& t) const {
  const std::size_t dot = t.id.module.rfind('.');
  if (t.id.slot != "grad" || t.id.module.empty() || runs(t.id.step, t.id.module)) return {};
  const std::string_view part = std::string_view(t.id.module).substr(dot == std::string::npos ? 0 : dot + 1),
                         param = std::string_view(t.id.arg).substr(0, t.id.arg.find('.'));
  LogicalTensor own = t;
  own.id.module.resize(dot == std::string::npos ? 0 : dot);
  const Operator* op = operator_of(own);
  if (op == nullptr) return {};
  const auto row = std::ranges::find_if(
      op->recorded_as, [&](const RecordedAs& r) { return r.module == part && r.name == param; });
  if (row == op->recorded_as.end()) return {};
  own.id.arg.replace(0, param.size(), row->arg);
  return own;
}

std::vector<const LogicalTensor*> RecordedCalls::indices_around(const LogicalTensor& t) const {
  TensorList all;
  for (std::string module = t.id.module;; module.resize(module.rfind('.'))) {
    if (const auto here = indices_.find({t.id.step, t.id.micro_batch, module}); here != indices_.end())
      all.insert(all.end(), here->second.begin(), here->second.end());
    if (module.rfind('.') == std::string::npos) return all;
  }
}

// A module's own product of its weight is the module's call, but a module that is not called lends its
// weight, and so does one that only looks up rows of it.
const RecordedCalls::TensorList& RecordedCalls::parameters_for_all(std::int64_t step) const {
  const auto [all, is_new] = for_all_.try_emplace(step);
  if (!is_new) return all->second;
  for (auto m = modules_.lower_bound({step, ""}); m != modules_.end() && m->first.first == step; ++m) {
    LogicalTensor gradient = *m->second.front();
    gradient.id.slot = "grad";
    if (runs(step, m->first.second)) {
      const Operator* op = operator_of(gradient);
      if (op == nullptr || std::ranges::find(op->args, Role::index, &Arg::role) == op->args.end()) continue;
    }
    std::ranges::copy_if(m->second, std::back_inserter(all->second),
                         [](const LogicalTensor* held) { return held->id.slot == "param"; });
  }
  return all->second;
}

std::vector<const LogicalTensor*> RecordedCalls::parameters_near(const LogicalTensor& t) const {
  TensorList near;
  const auto add = [&](const TensorList& held) {
    std::ranges::copy_if(held, std::back_inserter(near), [&](const LogicalTensor* param) {
      return param->id.slot == "param" && std::ranges::find(near, param) == near.end();
    });
  };
  const auto add_of = [&](const std::string& module) {
    const auto held = modules_.find({t.id.step, module});
    if (held != modules_.end()) add(held->second);
  };
  if (t.id.slot == "output") add_of(t.id.module);
  if (!t.id.module.empty()) {
    const auto dot = t.id.module.rfind('.');
    add_of(dot == std::string::npos ? "" : t.id.module.substr(0, dot));
  }
  add(parameters_for_all(t.id.step));
  return near;
}

RecordedCall RecordedCalls::of_value(const Operator& op, const LogicalTensor& value) const {
  RecordedCall call{&op, "", {{std::string(first_arg(op, Role::input).name), &value}}};
  add_inputs_from_elsewhere(call, value);
  return call;
}

}  // namespace assay
