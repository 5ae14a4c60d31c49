#include "assay/compare/flow/found_operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// What is recorded with a call, as far as it decides which operators may have made its results.
struct Given {
  std::int64_t inputs = 0, indices = 0, params = 0;
};

Given given_to(const LogicalTensor& result, const RecordedCalls& calls) {
  Given given;
  std::set<std::string> params;  // some recorders write them with each call
  for (const LogicalTensor* t : calls.around(result)) {
    if (t->id.phase != Phase::forward) continue;
    if (t->id.slot == "input") ++(is_float(t->dtype) ? given.inputs : given.indices);
    if (t->id.slot == "param") params.insert(t->id.arg);
  }
  given.params = std::ssize(params);
  return given;
}

// All that was recorded has a place, and nothing that is needed is missing.
bool has_place_for(const Operator& op, const Given& given) {
  const auto fits = [&](Role role, std::int64_t count) {
    const auto all = std::ranges::count(op.args, role, &Arg::role);
    const auto needed =
        std::ranges::count_if(op.args, [&](const Arg& a) { return a.role == role && !a.optional; });
    return needed <= count && count <= all;
  };
  const bool has_values = std::ranges::any_of(op.args, [](const Arg& a) { return a.role == Role::output; });
  return op.step == nullptr && has_values && fits(Role::input, given.inputs) &&
         fits(Role::index, given.indices) && fits(Role::param, given.params);
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

  std::map<std::string, const Operator*> find() {
    std::map<std::string, const Operator*> found;
    for (const auto& [kind, results] : results_) {
      const bool is_composite = has_parts(results.front()->id.module);
      const Given given = given_to(*results.front(), calls_);
      if (given.inputs == 0 ||
          !shows_call(*reference_.read(*results.front()), static_cast<double>(operators().size())))
        continue;
      for (const Operator* op : operators()) {
        if ((is_composite && !op->has_parts) || !has_place_for(*op, given)) continue;
        calls_.take_operator(kind, op);
        if (makes_first(results)) {
          found[kind] = op;
          break;
        }
        calls_.take_operator(kind, nullptr);
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

  // In several places: all elements of one may be positive by accident, where relu does nothing.
  bool makes_first(const std::vector<const LogicalTensor*>& results) const {
    constexpr std::size_t enough = 3;
    return std::all_of(
        results.begin(), results.begin() + static_cast<std::ptrdiff_t>(std::min(enough, results.size())),
        [&](const LogicalTensor* t) {
          const std::vector<RecordedCall> made_by = calls_.producers(*t);
          return made_by.size() == 1 && made_by.front().missing().empty() && makes_(made_by.front(), *t);
        });
  }

  const SideValues& reference_;
  const Makes& makes_;
  RecordedCalls& calls_;
  std::set<std::string> modules_;
  std::map<std::string, std::vector<const LogicalTensor*>> results_;  // without a known operator, by kind
};

}  // namespace

// A number that is in it many times says as much as one.
bool shows_call(const SideTensor& t, double tried) {
  const double bits = -std::log2(unit_roundoff(t.dtype));
  std::set<double> different;
  return std::ranges::any_of(t.values, [&](double v) {
    return different.insert(v).second &&
           proves(bits * static_cast<double>(different.size()), std::log2(tried) + bits_of_a_number);
  });
}

void find_operators(const SideValues& reference, const Makes& makes, RecordedCalls& reference_calls,
                    RecordedCalls& actual_calls) {
  for (const auto& [kind, op] : FoundOperators(reference, makes, reference_calls).find())
    actual_calls.take_operator(kind, op);
}

}  // namespace assay
