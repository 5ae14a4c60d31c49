#include "assay/compare/causes/optimizer/parameter_steps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

#include "assay/dumps/layout/merge.h"
#include "assay/operators/engine/golden.h"

#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

constexpr std::string_view master_name = "master";

// Whether recorders call this parameter what the operator calls its own.
bool is_recorded_as(const Operator& op, const std::string& arg) {
  return std::ranges::any_of(op.recorded_as, [&](const RecordedAs& row) {
    return row.arg == op.step->parameter && row.name == arg;
  });
}

// The operators whose states have these names, in the order in which each lists them.
std::vector<const Operator*> operators_with(const std::set<std::string>& states, const std::string& arg) {
  std::vector<const Operator*> found;
  for (const Operator* op : operators()) {
    if (op->step == nullptr) continue;
    std::set<std::string> own;
    for (const StepState& s : op->step->states) own.emplace(s.before);
    if (!op->recorded_as.empty() ? states.empty() && is_recorded_as(*op, arg)
                                 : own == states || (states.empty() && op->step->stateless))
      found.push_back(op);
  }
  const auto is_named = [](const Operator* op) { return !op->recorded_as.empty(); };
  if (std::ranges::any_of(found, is_named)) std::erase_if(found, std::not_fn(is_named));
  // Without decay those where it leaves the gradient alone are as good.
  std::ranges::stable_partition(found, [](const Operator* op) {
    return std::ranges::any_of(op->step->settings, [&](const StepSetting& s) {
      return s.is == StepNumber::decay && s.shows_in == op->step->updated;
    });
  });
  // Those that step each element by itself cost least.
  std::ranges::stable_partition(
      found, [](const Operator* op) { return input_arg(*op, op->step->parameter).shape == "S*"; });
  return found;
}

class Steps {
 public:
  Steps(const std::vector<Finding>& findings, const std::vector<Pair>& pairs, const std::vector<Pair>& beside,
        const Sides& sides)
      : findings_(findings), pairs_(pairs), beside_(beside), sides_(sides) {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      keep_lone_master(pairs_[i]);
      if (!is_usable(i)) continue;
      const Identity& id = pairs_[i].id();
      by_id_.emplace(id, i);
      if (id.phase != Phase::optimizer) continue;
      first_step_ = std::min(first_step_, id.step);
      const std::size_t dot = id.slot == "state" ? id.arg.rfind('.') : std::string::npos;
      auto& states = parameters_[{id.step, id.module, id.arg.substr(0, dot)}];
      if (dot != std::string::npos && id.arg.substr(dot + 1) != master_name)
        states.insert(id.arg.substr(dot + 1));
    }
  }

  RecordedSteps all() const {
    RecordedSteps found;
    for (const auto& [key, states] : parameters_) {
      const auto& [step, module, arg] = key;
      ParameterStep s;
      s.module = module;
      s.arg = arg;
      s.step = step;
      s.starts = step == first_step_;
      s.ops = operators_with(states, arg);
      if (!s.ops.empty() && fill(s)) found.steps.push_back(std::move(s));
    }
    for (const auto& [id, i] : by_id_) {
      if (id.micro_batch == -1 && id.phase != Phase::none && pairs_[i].reference->shape.empty())
        found.scalars[id.step].push_back({source(i, true).value(0), source(i, false).value(0), i});
    }
    for (std::size_t i = 0; i < pairs_.size(); ++i)
      add_gradient(found, pairs_[i], findings_[i].verdict != Verdict::replicas_differ);
    for (const Pair& pair : found.steps.empty() ? std::vector<Pair>() : beside_)
      add_gradient(found, pair, true);
    return found;
  }

 private:
  // One that a side alone has is in its norm, too.
  void add_gradient(RecordedSteps& found, const Pair& pair, bool has_one_value) const {
    const Identity& id = pair.id();
    if (!is_whole_gradient(id)) return;
    const auto side = [&](const LogicalTensor* t, const Dump& dump) -> std::optional<TensorSource> {
      std::optional<TensorSource> whole;
      if (t != nullptr && is_float(t->dtype) && without_bits(dump, *t) == nullptr)
        (void)trouble_in([&] { whole = merge(dump, *t).tensor; });  // which the comparison reports
      return whole;
    };
    ReducedGradient g{id.module + "." + id.arg,
                      (pair.actual != nullptr ? pair.actual : pair.reference)->shape,
                      side(pair.actual, sides_.actual),
                      side(pair.reference, sides_.reference),
                      {}};
    if (pair.actual != nullptr) g.records = pair.actual->records;
    g.has_one_value = has_one_value;
    if (g.actual || g.reference) found.gradients[id.step].push_back(std::move(g));
  }

  bool is_pair_of_numbers(std::size_t i) const {
    const Pair& p = pairs_[i];
    return p.actual != nullptr && p.reference != nullptr && p.actual->shape == p.reference->shape &&
           findings_[i].metrics.has_value() && is_float(p.actual->dtype) && is_float(p.reference->dtype);
  }

  // Ranks that disagree have no one value.
  bool is_usable(std::size_t i) const {
    return is_pair_of_numbers(i) && findings_[i].verdict != Verdict::replicas_differ;
  }

  // Only one side keeps parameters in a narrow dtype.
  void keep_lone_master(const Pair& p) {
    if ((p.actual == nullptr) == (p.reference == nullptr)) return;
    const bool is_actual = p.actual != nullptr;
    const LogicalTensor& t = is_actual ? *p.actual : *p.reference;
    if (t.id.phase == Phase::optimizer && t.id.arg.ends_with(".master") && is_float(t.dtype) &&
        without_bits(is_actual ? sides_.actual : sides_.reference, t) == nullptr)
      lone_masters_[is_actual].emplace(t.id, &t);
  }

  // What is stepped where the parameter is a narrow copy of it.
  std::optional<TensorSource> master(const ParameterStep& s, std::int64_t step, bool is_actual) const {
    const Identity id{step, -1, Phase::optimizer, s.module, "state", s.arg + ".master", 0};
    if (const auto pair = find(id, s.shape)) return source(*pair, is_actual);
    const auto at = lone_masters_[is_actual].find(id);
    if (at == lone_masters_[is_actual].end() || at->second->shape != s.shape) return {};
    return merge(is_actual ? sides_.actual : sides_.reference, *at->second).tensor;
  }

  TensorSource source(std::size_t i, bool is_actual) const {
    return is_actual ? merge(sides_.actual, *pairs_[i].actual).tensor
                     : merge(sides_.reference, *pairs_[i].reference).tensor;
  }

  std::optional<std::size_t> find(const Identity& id, const Shape& shape) const {
    const auto at = by_id_.find(id);
    if (at == by_id_.end() || pairs_[at->second].reference->shape != shape) return {};
    return at->second;
  }

  // Counts of a step, beside the parameter; or those that were made in a module around it, of all
  // micro-batches.
  std::optional<TensorSource> counts(const ParameterStep& s, const std::string& name, bool is_actual) const {
    const Dump& dump = is_actual ? sides_.actual : sides_.reference;
    std::map<std::int64_t, Tensor> by_micro_batch;
    for (const LogicalTensor& t : is_actual ? sides_.actual_tensors : sides_.reference_tensors) {
      const Identity& id = t.id;
      if (id == Identity{s.step, -1, Phase::optimizer, s.module, "state", name, 0} && t.shape == s.shape &&
          without_bits(dump, t) == nullptr)
        return merge(dump, t).tensor;
      if (id.step == s.step && id.phase == Phase::forward && id.slot == "output" && id.arg == name &&
          s.module.starts_with(id.module + ".") && !is_float(t.dtype) && t.shape == s.shape &&
          without_bits(dump, t) == nullptr)
        by_micro_batch.try_emplace(id.micro_batch, merge(dump, t).tensor.whole());
    }
    if (by_micro_batch.empty()) return {};
    std::vector<double> sum(static_cast<std::size_t>(element_count(s.shape)));
    for (const auto& [micro_batch, t] : by_micro_batch) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += t.value(static_cast<std::int64_t>(i));
    }
    return TensorSource(Tensor(s.shape, std::span<const double>(sum)));
  }

  bool fill(ParameterStep& s) const {
    const auto at = [&](std::int64_t step, Phase phase, const char* slot, const std::string& arg) {
      const Identity id{step, -1, phase, s.module, slot, arg, 0};
      if (s.shape.empty() && by_id_.contains(id)) s.shape = pairs_[by_id_.at(id)].reference->shape;
      return find(id, s.shape);
    };
    const Operator& op = *s.ops.front();
    // What no gradient steps is a buffer to some programs.
    const auto value = [&](std::int64_t step, Phase phase) {
      const auto param = at(step, phase, "param", s.arg);
      return param || op.recorded_as.empty() ? param : at(step, phase, "state", s.arg);
    };
    const auto param = value(s.step, Phase::optimizer);
    std::vector<std::size_t> states, states_before;
    for (const StepState& state : op.step->states) {
      const std::string arg = state_name(s.arg, state.before);
      const auto after = at(s.step, Phase::optimizer, "state", arg);
      if (!after && op.step->stateless) break;
      if (!after) return false;
      states.push_back(*after);
      const auto earlier = at(s.step - 1, Phase::optimizer, "state", arg);
      if (!s.starts && !earlier) return false;
      if (!s.starts) states_before.push_back(*earlier);
    }
    auto after = at(s.step, Phase::optimizer, "state", state_name(s.arg, master_name));
    if (!after) after = param;
    auto before = value(s.step, Phase::forward);
    if (!before) before = value(s.step - 1, Phase::optimizer);
    const auto gradient = at(s.step, Phase::backward, "grad", s.arg);
    for (const bool is_actual : {true, false}) {
      StepTensors& t = is_actual ? s.actual : s.reference;
      const auto take = [&](std::optional<std::size_t> k) {
        return k ? std::optional(source(*k, is_actual)) : std::nullopt;
      };
      const auto g =
          op.recorded_as.empty() ? take(gradient) : counts(s, std::string(op.step->gradient), is_actual);
      if (!g) return false;
      t.gradient = *g;
      for (const std::size_t k : states) t.states.push_back(source(k, is_actual));
      for (const std::size_t k : states_before) t.states_before.emplace_back(source(k, is_actual));
      t.states_before.resize(states.size());
      // Before the first step a master is the parameter itself: programs make it of what is loaded.
      t.after = master(s, s.step, is_actual);
      t.before = master(s, s.step - 1, is_actual);
      const bool has_master = t.after && (t.before || s.starts);
      if (!has_master) t.after = take(param);
      if (!has_master || !t.before) t.before = take(before);
      if (!after || !t.after || !t.before) t.after = t.before = std::nullopt;
      settle(t);
    }
    if (s.actual.results() != s.reference.results() || s.actual.results() == 0) return false;
    s.findings = states;
    if (s.actual.after) s.findings.push_back(*after);
    const auto is_other = [&](std::size_t i) {
      const Metrics& m = findings_[i].metrics.value();
      return m.max_abs > 0 || m.special_mismatch > 0;
    };
    s.differs = std::ranges::any_of(s.findings, is_other);
    return true;
  }

  static std::string state_name(const std::string& arg, std::string_view state) {
    return arg + "." + std::string(state);
  }

  // Counts are whole numbers, which say nothing of the arithmetic.
  static void settle(StepTensors& t) {
    std::vector<DType> all = {t.gradient.dtype()};
    for (const auto& x : {t.before, t.after}) {
      if (x) all.push_back(x->dtype());
    }
    for (const TensorSource& x : t.states) all.push_back(x.dtype());
    const bool is_double = std::ranges::all_of(all, [](DType d) { return d == DType::float64; });
    t.arithmetic = is_double ? DType::float64 : DType::float32;
  }

  const std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const std::vector<Pair>& beside_;
  const Sides& sides_;
  std::map<Identity, std::size_t> by_id_;
  std::map<std::tuple<std::int64_t, std::string, std::string>, std::set<std::string>> parameters_;
  std::array<std::map<Identity, const LogicalTensor*>, 2>
      lone_masters_;  // of the reference, of the actual side
  std::int64_t first_step_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

RecordedSteps recorded_steps(const std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                             const std::vector<Pair>& beside, const Sides& sides) {
  return Steps(findings, pairs, beside, sides).all();
}

}  // namespace assay
