#include "assay/compare/causes/nearby_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <tuple>

#include "assay/dumps/layout/merged_sketch.h"

namespace assay {
namespace {

// Each is read whole; a buffer that was not renewed holds what was in it a few steps or micro-batches ago,
// alone or with something added to it.
constexpr std::size_t most_near = 64;

// The same tensor in every step, micro-batch and call.
Identity in_any_call(Identity id) {
  id.step = id.micro_batch = id.call = 0;
  return id;
}

}  // namespace

NearbyTensors::NearbyTensors(const Dump& dump, const std::vector<LogicalTensor>& tensors, Holding holding)
    : dump_(dump), tensors_(tensors), holding_(holding), by_id_(tensors) {
  for (const LogicalTensor& t : tensors) by_name_[in_any_call(t.id)].push_back(&t);
}

const LogicalTensor* NearbyTensors::find(const Identity& id) const {
  if (const LogicalTensor* t = by_id_.with_values(dump_, id)) return t;
  const LogicalTensor* t = holding_ == Holding::sketches ? by_id_.find(id) : nullptr;
  return t != nullptr && has_sketches(dump_, *t) ? t : nullptr;
}

std::vector<const LogicalTensor*> NearbyTensors::in_other_calls(const Identity& own,
                                                                const Shape& shape) const {
  std::vector<const LogicalTensor*> others;
  for (const LogicalTensor* t : by_name_.at(in_any_call(own))) {
    if (t->id != own && t->shape == shape && find(t->id) != nullptr) others.push_back(t);
  }
  std::ranges::stable_sort(others, {}, [&](const LogicalTensor* t) {
    return std::tuple(std::abs(t->id.step - own.step), std::abs(t->id.micro_batch - own.micro_batch),
                      std::abs(t->id.call - own.call));
  });
  others.resize(std::min(others.size(), most_near));
  return others;
}

std::vector<const LogicalTensor*> NearbyTensors::of_other_modules(const Identity& own, const Shape& shape,
                                                                  bool beside_alone) const {
  const auto leaf = [](std::string_view m) { return m.substr(m.rfind('.') + 1); };
  const auto parent = [](std::string_view m) { return m.substr(0, m.rfind('.') + 1); };
  std::vector<const LogicalTensor*> others, beside;
  for (const LogicalTensor& t : tensors_) {
    Identity same = t.id;
    same.module = own.module;
    if (same != own || t.id == own || t.shape != shape || find(t.id) == nullptr) continue;
    if (parent(t.id.module) == parent(own.module))
      beside.push_back(&t);
    else if (!beside_alone && leaf(t.id.module) == leaf(own.module))
      others.push_back(&t);
  }
  others.insert(others.end(), beside.begin(), beside.end());
  others.resize(std::min(others.size(), most_near));
  return others;
}

std::vector<NearbyTensors::Term> NearbyTensors::terms_of(const Identity& id, const Shape& shape) const {
  const std::string param = id.arg.substr(0, id.arg.find('.'));
  std::vector<Term> terms = {
      {{id.step, -1, Phase::forward, id.module, "param", param, 0}, "its parameter before the step"},
      {{id.step, -1, Phase::forward, id.module, "param", "bias", 0}, "the bias"},
      {{id.step, -1, Phase::forward, id.module, "param", "weight", 0}, "the weight"},
      {{id.step, -1, Phase::backward, id.module, "grad", param, 0}, "its gradient"},
      {{id.step - 1, -1, Phase::backward, id.module, "grad", param, 0}, "its gradient of the step before"},
      {{id.step, id.micro_batch, Phase::forward, id.module, "input", "x", id.call}, "the module's input"},
      {{id.step, id.micro_batch, Phase::backward, id.module, "grad_output", "y", id.call},
       "the gradient of the module's output"},
  };
  for (const LogicalTensor* other : in_other_calls(id, shape)) {
    if (other->id.step == id.step && other->id.micro_batch < id.micro_batch)
      terms.push_back({other->id, "the tensor of a micro-batch before"});
  }
  if (id.slot == "grad") {
    for (const LogicalTensor* other : of_other_modules(id, shape, true)) {
      terms.push_back({other->id, fmt::format("the gradient of {}", other->id.module)});
    }
  }
  return terms;
}

}  // namespace assay
