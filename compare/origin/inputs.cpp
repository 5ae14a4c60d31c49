#include "assay/compare/origin/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace assay {

bool is_result(const Identity& id) {
  return id.slot == "output" || id.slot == "grad_input" || id.slot == "grad";
}

Inputs::Inputs(const std::vector<Finding>& findings, const std::vector<Pair>& pairs,
               const RecordedCalls& reference, const Flow* flow)
    : findings_(findings),
      pairs_(pairs),
      reference_(reference),
      flow_(flow),
      first_step_(std::numeric_limits<std::int64_t>::max()) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].reference != nullptr) by_tensor_.emplace(pairs[i].reference, i);
    by_id_.emplace(pairs[i].id(), i);
    first_step_ = std::min(first_step_, pairs[i].id().step);
  }
}

std::optional<std::size_t> Inputs::find(const Identity& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::nullopt : std::optional(found->second);
}

void Inputs::add(std::vector<std::size_t>& inputs, const Identity& id) const {
  if (const auto found = by_id_.find(id); found != by_id_.end()) inputs.push_back(found->second);
}

std::vector<std::size_t> Inputs::of_step(std::size_t i) const {
  std::vector<std::size_t> inputs;
  const Identity& id = findings_[i].id;
  const std::string param = id.arg.substr(0, id.arg.find('.'));
  add(inputs, {id.step, -1, Phase::backward, id.module, "grad", param, 0});
  if (inputs.empty()) return inputs;  // no part of a parameter's step
  add(inputs, {id.step, -1, Phase::forward, id.module, "param", param, 0});
  add(inputs, {id.step, -1, Phase::backward, "step", "loss", "grad_norm", 0});
  for (const char* norm : {"norm", "clip_coeff"})
    add(inputs, {id.step, -1, Phase::optimizer, "grad_norm", "state", norm, 0});
  // A narrow parameter is a copy of its master.
  if (id.slot == "param")
    add(inputs, {id.step, -1, Phase::optimizer, id.module, "state", id.arg + ".master", 0});
  std::erase(inputs, i);
  return inputs;
}

std::vector<std::size_t> Inputs::of(std::size_t i) const {
  std::vector<std::size_t> inputs;
  const Identity& id = findings_[i].id;
  if (pairs_[i].reference == nullptr) return inputs;
  if (id.phase == Phase::optimizer) return of_step(i);
  if (id.slot == "grad" && id.arg.find(".unreduced") == std::string::npos) {
    Identity unreduced = id;
    unreduced.arg += ".unreduced";
    add(inputs, unreduced);
    if (!inputs.empty()) return inputs;
  }
  if (flow_ != nullptr) {
    for (const LogicalTensor* source : flow_->sources(*pairs_[i].reference)) {
      if (const auto found = by_tensor_.find(source); found != by_tensor_.end())
        inputs.push_back(found->second);
    }
    if (!inputs.empty()) return inputs;
  }
  if (id.slot == "param" && id.phase == Phase::forward && id.step > 0) {
    add(inputs, {id.step - 1, -1, Phase::optimizer, id.module, "param", id.arg, 0});
    return inputs;
  }
  return of_call(i);
}

std::vector<std::size_t> Inputs::of_call(std::size_t i) const {
  std::vector<std::size_t> inputs;
  const Identity& id = findings_[i].id;
  if (pairs_[i].reference == nullptr || !is_result(id) || id.phase == Phase::optimizer) return inputs;
  const bool is_backward = id.slot != "output";
  for (const LogicalTensor* t : reference_.around(*pairs_[i].reference)) {
    const std::string& slot = t->id.slot;
    const bool counts = slot == "input" || slot == "param" || (is_backward && slot == "grad_output");
    if (!counts) continue;
    if (const auto found = by_tensor_.find(t); found != by_tensor_.end()) inputs.push_back(found->second);
  }
  return inputs;
}

std::vector<std::size_t> Inputs::given_to_call(std::size_t i) const {
  std::vector<std::size_t> inputs;
  if (flow_ == nullptr || pairs_[i].reference == nullptr) return inputs;
  for (const LogicalTensor* t : flow_->given(*pairs_[i].reference)) {
    if (const auto found = by_tensor_.find(t); found != by_tensor_.end()) inputs.push_back(found->second);
  }
  return inputs;
}

bool Inputs::hold_data(std::size_t i, const std::vector<std::size_t>& inputs) const {
  const Identity& id = findings_[i].id;
  if (!is_result(id) || id.phase == Phase::optimizer) return !inputs.empty();
  return std::ranges::any_of(inputs, [&](std::size_t k) {
    const std::string& slot = findings_[k].id.slot;
    return id.slot == "output" ? slot == "input" : slot == "grad_output" || slot == "grad";
  });
}

bool Inputs::is_initial(const Identity& id) const {
  return id.slot == "param" && id.phase == Phase::forward && id.step == first_step_;
}

std::string Inputs::names(const std::vector<std::size_t>& inputs) const {
  constexpr std::size_t most = 3;
  std::string names;
  for (std::size_t i = 0; i < std::min(inputs.size(), most); ++i) {
    const Identity& id = findings_[inputs[i]].id;
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", id.slot, id.arg);
  }
  return names + (inputs.size() > most ? fmt::format(" and {} more", inputs.size() - most) : "");
}

}  // namespace assay
