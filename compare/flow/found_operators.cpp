#include "assay/compare/flow/found_operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/calls/declared_args.h"
#include "assay/compare/flow/hidden_arguments.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"
#include "assay/operators/engine/binding.h"

namespace assay {
namespace {

// What is recorded with a call, as far as it decides which operators may have made its results.
struct Given {
  std::int64_t inputs = 0, indices = 0, params = 0;
  std::int64_t results = 0;
};

Given given_to(const LogicalTensor& result, const RecordedCalls& calls) {
  Given given;
  std::set<std::string> params;  // some recorders write them with each call
  for (const LogicalTensor* t : calls.around(result)) {
    if (t->id.phase != Phase::forward) continue;
    if (t->id.slot == "input") ++(is_float(t->dtype) ? given.inputs : given.indices);
    if (t->id.slot == "param") params.insert(t->id.arg);
    given.results += t->id.slot == "output";
  }
  given.params = std::ssize(params);
  return given;
}

// All that was recorded has a place, and nothing that is needed is missing. Of several results one may be
// made of a part of the inputs: a router's logits without the bias of its choice.
bool has_place_for(const Operator& op, const Given& given) {
  const auto fits = [&](Role role, std::int64_t count) {
    const auto all = std::ranges::count(op.args, role, &Arg::role);
    const auto needed =
        std::ranges::count_if(op.args, [&](const Arg& a) { return a.role == role && !a.optional; });
    const bool may_ignore = role == Role::input && given.results > 1;
    return needed <= count && (count <= all || may_ignore);
  };
  const bool has_values = std::ranges::any_of(op.args, [](const Arg& a) { return a.role == Role::output; });
  return op.step == nullptr && has_values && fits(Role::input, given.inputs) &&
         fits(Role::index, given.indices) && fits(Role::param, given.params);
}

// Orders in which a class may return the results that recorders number, that of Usage::recorded_as first.
std::vector<ResultOrder> orders_of(const Operator& op, const LogicalTensor& result,
                                   const RecordedCalls& calls) {
  const auto is_number = [](std::string_view name) {
    return name.size() == 1 && name.front() >= '0' && name.front() <= '9';
  };
  ResultOrder names;
  for (const RecordedAs& row : op.recorded_as) {
    if (is_number(row.name) && find_arg(op, row.arg) != nullptr) names.push_back(row.arg);
  }
  std::map<std::string, const LogicalTensor*> returned;
  for (const LogicalTensor* t : calls.around(result)) {
    if (t->id.phase == Phase::forward && t->id.slot == "output" && is_number(t->id.arg))
      returned.emplace(t->id.arg, t);
  }
  if (names.size() < 2 || returned.empty() || returned.size() > names.size()) return {{}};
  std::vector<std::size_t> at(names.size());
  std::iota(at.begin(), at.end(), 0);
  std::vector<ResultOrder> orders;
  const std::vector<Attributes> ways = reshaping(op);
  const auto fit_in = [&](const ResultOrder& order, const Attributes& way) {
    std::map<std::string_view, std::int64_t> extents;
    return std::ranges::equal(order, returned, [&](std::string_view name, const auto& number) {
      const Arg& arg = *find_arg(op, name);
      const LogicalTensor& t = *number.second;
      return is_float(t.dtype) != (arg.role == Role::output_index) &&
             fits(shape_letters(op, arg, way), t.shape, extents);
    });
  };
  do {
    ResultOrder order;
    for (std::size_t i = 0; i < returned.size(); ++i) order.push_back(names[at[i]]);
    const bool may_be = std::ranges::any_of(ways, [&](const Attributes& way) { return fit_in(order, way); });
    if (may_be && std::ranges::find(orders, order) == orders.end()) orders.push_back(std::move(order));
  } while (std::ranges::next_permutation(at).found);
  return orders.empty() ? std::vector<ResultOrder>{{}} : orders;
}

class FoundOperators {
 public:
  FoundOperators(const SideValues& reference, const Makes& makes, RecordedCalls& calls)
      : reference_(reference), makes_(makes), calls_(calls) {
    for (const LogicalTensor& t : reference.tensors()) {
      if (t.id.phase != Phase::forward || (t.id.slot != "input" && t.id.slot != "output")) continue;
      modules_.insert(t.id.module);
      if (t.id.slot == "output" && is_float(t.dtype) && reference.find(t.id) == &t &&
          calls.operator_of(t) == nullptr)
        results_[RecordedCalls::kind_of(t)].push_back(&t);
    }
  }

  std::map<std::string, RecordedCalls::Taken> find() {
    std::map<std::string, RecordedCalls::Taken> found;
    for (const auto& [kind, results] : results_) {
      const bool is_composite = has_parts(results.front()->id.module);
      const Given given = given_to(*results.front(), calls_);
      if (given.inputs == 0 || (given.params == 0 && hands_on(results)) ||
          !shows_call(*reference_.read(*results.front()), static_cast<double>(operators().size())))
        continue;
      for (const Operator* op : operators()) {
        if (op->is_coarse || (is_composite && !op->has_parts) || !has_place_for(*op, given)) continue;
        for (const ResultOrder& order : orders_of(*op, *results.front(), calls_)) {
          calls_.take_operator(kind, {op, order});
          if (makes_several(results)) {
            found[kind] = {op, order};
            break;
          }
          calls_.take_operator(kind, {});
        }
        if (found.contains(kind)) break;
      }
    }
    return found;
  }

 private:
  // A module with recorded parts is none of one operator, but of those that have such.
  bool has_parts(const std::string& module) const {
    const auto next = modules_.upper_bound(module + ".");
    return next != modules_.end() && next->starts_with(module + ".");
  }

  // In several places: all elements of one may be positive by accident, where relu does nothing. And in the
  // last one: parameters may begin as ones and zeros, which any operator takes without a trace.
  static bool in_several(const std::vector<const LogicalTensor*>& results, const auto& holds) {
    constexpr std::size_t enough = 3;
    const auto first = results.begin() + static_cast<std::ptrdiff_t>(std::min(enough, results.size()));
    return std::all_of(results.begin(), first, holds) && holds(results.back());
  }
  bool makes_several(const std::vector<const LogicalTensor*>& results) const {
    return in_several(results, [&](const LogicalTensor* t) {
      const std::vector<RecordedCall> made_by = calls_.producers(*t);
      return made_by.size() == 1 && made_by.front().missing().empty() && makes_(made_by.front(), *t);
    });
  }
  // A dropout that drops nothing is no rotation by nothing: a copy says more of its source. What has
  // parameters has them for more than that.
  bool hands_on(const std::vector<const LogicalTensor*>& results) const {
    return in_several(results, [&](const LogicalTensor* t) {
      const auto made = reference_.read(*t);
      return std::ranges::any_of(calls_.around(*t), [&](const LogicalTensor* given) {
        return given->id.phase == Phase::forward && given->id.slot == "input" && is_float(given->dtype) &&
               element_count(given->shape) == element_count(t->shape) &&
               reference_.read(*given)->values == made->values;
      });
    });
  }

  const SideValues& reference_;
  const Makes& makes_;
  RecordedCalls& calls_;
  std::set<std::string> modules_;
  std::map<std::string, std::vector<const LogicalTensor*>> results_;  // without a known operator, by kind
};

}  // namespace

// Whether a shape fits the letters, the extents of which are known or become so.
bool fits(std::string_view letters, const Shape& shape, std::map<std::string_view, std::int64_t>& extents) {
  const std::vector<Part> parts = parts_of(letters);
  const auto starred = static_cast<std::size_t>(std::ranges::count_if(parts, &Part::starred));
  if (starred > 1 && starred == parts.size()) return true;  // any shape may be theirs
  if (starred > 1 || shape.size() + starred < parts.size() || (starred == 0 && shape.size() != parts.size()))
    return false;
  std::size_t dim = 0;
  for (const Part& part : parts) {
    if (part.starred) {
      dim += shape.size() - (parts.size() - 1);
      continue;
    }
    const std::int64_t extent = shape[dim++];
    if (!part.literal && extents.try_emplace(part.letter, extent).first->second != extent) return false;
  }
  return true;
}

// A number that is in it many times says as much as one.
bool shows_call(const SideTensor& t, double tried) {
  const double bits = -std::log2(unit_roundoff(t.dtype));
  std::set<double> different;
  return std::ranges::any_of(t.values, [&](double v) {
    return different.insert(v).second &&
           proves(bits * static_cast<double>(different.size()), std::log2(tried) + bits_of_a_number);
  });
}

bool shows_choice(const SideTensor& t, double tried) {
  const std::set<double> different(t.values.begin(), t.values.end());
  return proves(static_cast<double>(t.values.size()) * std::log2(static_cast<double>(different.size())),
                std::log2(tried));
}

void find_operators(const SideValues& reference, const Makes& makes, RecordedCalls& reference_calls,
                    RecordedCalls& actual_calls) {
  for (const auto& [kind, taken] : FoundOperators(reference, makes, reference_calls).find())
    actual_calls.take_operator(kind, taken);
}

}  // namespace assay
