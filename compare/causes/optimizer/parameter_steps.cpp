#include "assay/compare/causes/optimizer/parameter_steps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "assay/dumps/layout/merge.h"

namespace assay {
namespace {

constexpr std::string_view first_moment = ".exp_avg";

class Steps {
 public:
  Steps(const std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides)
      : findings_(findings), pairs_(pairs), sides_(sides) {
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      keep_lone_master(pairs_[i]);
      if (!is_usable(i)) continue;
      const Identity& id = pairs_[i].id();
      by_id_.emplace(id, i);
      if (id.phase == Phase::optimizer) first_step_ = std::min(first_step_, id.step);
    }
  }

  RecordedSteps all() const {
    RecordedSteps found;
    for (const auto& [id, i] : by_id_) {  // an Identity begins with its step
      if (id.phase == Phase::optimizer && id.slot == "state" && id.arg.ends_with(first_moment)) {
        if (auto step = step_of(id, i)) found.steps.push_back(std::move(*step));
      } else if (id.phase == Phase::backward && id.arg == "grad_norm" && pairs_[i].reference->shape.empty()) {
        found.grad_norms[id.step] = {source(i, true).value(0), source(i, false).value(0), i};
      } else if (id.phase == Phase::backward && id.slot == "grad" && id.micro_batch == -1 &&
                 id.arg.find('.') == std::string::npos) {
        found.gradients[id.step].push_back(
            {id.module + "." + id.arg, pairs_[i].reference->shape, source(i, true), source(i, false)});
      }
    }
    return found;
  }

 private:
  // Ranks that disagree have no one value.
  bool is_usable(std::size_t i) const {
    const Pair& p = pairs_[i];
    return p.actual != nullptr && p.reference != nullptr && p.actual->shape == p.reference->shape &&
           findings_[i].verdict != Verdict::replicas_differ && findings_[i].metrics.has_value() &&
           is_float(p.actual->dtype) && is_float(p.reference->dtype);
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

  std::optional<ParameterStep> step_of(const Identity& id, std::size_t i) const {
    ParameterStep s;
    s.module = id.module;
    s.arg = id.arg.substr(0, id.arg.size() - first_moment.size());
    s.step = id.step;
    s.shape = pairs_[i].reference->shape;
    s.first_finding = i;
    const auto at = [&](std::int64_t step, Phase phase, const char* slot, const std::string& arg) {
      return find({step, -1, phase, s.module, slot, arg, 0}, s.shape);
    };
    const std::string first = s.arg + ".exp_avg", second = s.arg + ".exp_avg_sq";
    s.second_finding = at(s.step, Phase::optimizer, "state", second);
    s.gradient_finding = at(s.step, Phase::backward, "grad", s.arg);
    if (!s.second_finding || !s.gradient_finding) return {};
    const bool starts = s.step == first_step_;
    s.after_finding = at(s.step, Phase::optimizer, "state", s.arg + ".master");
    const auto param = at(s.step, Phase::optimizer, "param", s.arg);
    if (!s.after_finding) s.after_finding = param;
    auto before = at(s.step, Phase::forward, "param", s.arg);
    if (!before) before = at(s.step - 1, Phase::optimizer, "param", s.arg);
    const auto first_before = at(s.step - 1, Phase::optimizer, "state", first),
               second_before = at(s.step - 1, Phase::optimizer, "state", second);
    if (!starts && (!first_before || !second_before)) return {};
    for (const bool is_actual : {true, false}) {
      StepTensors& t = is_actual ? s.actual : s.reference;
      const auto take = [&](std::optional<std::size_t> k) {
        return k ? std::optional(source(*k, is_actual)) : std::nullopt;
      };
      t.starts = starts;
      t.first = take(s.first_finding);
      t.second = take(s.second_finding);
      t.gradient = take(s.gradient_finding);
      t.first_before = take(first_before);
      t.second_before = take(second_before);
      // Before the first step a master is the parameter itself: programs make it of what is loaded.
      t.after = master(s, s.step, is_actual);
      t.before = master(s, s.step - 1, is_actual);
      const bool has_master = t.after && (t.before || starts);
      if (!has_master) t.after = take(param);
      if (!has_master || !t.before) t.before = take(before);
      if (!s.after_finding || !t.after || !t.before) t.after = t.before = std::nullopt;
      const auto is_double = [](const auto& x) { return !x || x->dtype() == DType::float64; };
      const bool all_double = is_double(t.first) && is_double(t.second) && is_double(t.gradient) &&
                              is_double(t.before) && is_double(t.after);
      t.u = unit_roundoff(all_double ? DType::float64 : DType::float32);
    }
    return s;
  }

  const std::vector<Finding>& findings_;
  const std::vector<Pair>& pairs_;
  const Sides& sides_;
  std::map<Identity, std::size_t> by_id_;
  std::array<std::map<Identity, const LogicalTensor*>, 2>
      lone_masters_;  // of the reference, of the actual side
  std::int64_t first_step_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

RecordedSteps recorded_steps(const std::vector<Finding>& findings, const std::vector<Pair>& pairs,
                             const Sides& sides) {
  return Steps(findings, pairs, sides).all();
}

}  // namespace assay
