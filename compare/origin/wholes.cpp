#include "assay/compare/origin/wholes.h"

#include "assay/compare/flow/relation.h"
#include "assay/compare/origin/inputs.h"

namespace assay {

Wholes::Wholes(const std::vector<Finding>& findings, const std::vector<Pair>& pairs,
               const RecordedCalls& calls) {
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Identity& id = findings[i].id;
    if (id.slot == "output" && (pairs[i].actual == nullptr || pairs[i].reference == nullptr))
      lone_.emplace(Key{id.step, id.micro_batch, id.phase, id.module}, id.call, pairs[i].actual != nullptr);
    if (!is_result(id) || id.phase == Phase::optimizer || pairs[i].reference == nullptr) continue;
    if (id.slot == "output" && pairs[i].actual != nullptr)
      outputs_[{{id.step, id.micro_batch, id.phase, id.module}, id.call}].push_back(i);
    all_[{id.step, id.micro_batch, id.phase, id.module}].push_back(i);
    if (!pairs[i].reference->within) made_[{id.step, id.micro_batch, id.phase, id.module}].push_back(i);
    const Operator* op = calls.operator_of(*pairs[i].reference);
    if (op != nullptr && op->has_parts) results_[{id.step, id.micro_batch, id.phase, id.module}].push_back(i);
  }
}

std::vector<std::size_t> Wholes::results_around(const Identity& id) const {
  if (id.micro_batch < 0) return {};
  for (std::string module = module_around(id.module); !module.empty(); module = module_around(module)) {
    const auto own = results_.find({id.step, id.micro_batch, id.phase, module});
    if (own == results_.end()) continue;
    std::vector<std::size_t> all = own->second;
    if (const auto of_step = results_.find({id.step, -1, id.phase, module}); of_step != results_.end())
      all.insert(all.end(), of_step->second.begin(), of_step->second.end());
    return all;
  }
  return {};
}

std::vector<std::size_t> Wholes::results_in(const Identity& container) const {
  std::vector<std::size_t> all;
  const std::string inside = container.module + ".";
  const Key first{container.step, container.micro_batch, container.phase, inside};
  for (auto at = made_.lower_bound(first); at != made_.end(); ++at) {
    const auto& [step, micro_batch, phase, module] = at->first;
    if (step != container.step || micro_batch != container.micro_batch || phase != container.phase ||
        !module.starts_with(inside))
      break;
    all.insert(all.end(), at->second.begin(), at->second.end());
  }
  return all;
}

std::vector<std::vector<std::size_t>> Wholes::results_of_containers(const Identity& id) const {
  std::vector<std::vector<std::size_t>> found;
  for (std::string module = module_around(id.module); !module.empty(); module = module_around(module)) {
    if (const auto own = all_.find({id.step, id.micro_batch, id.phase, module}); own != all_.end())
      found.push_back(own->second);
  }
  const auto of_parameters = all_.find({id.step, -1, id.phase, id.module});
  if (found.empty() && of_parameters != all_.end()) found.push_back(of_parameters->second);
  return found;
}

bool Wholes::has_lone_result(const Identity& id, bool on_actual) const {
  return lone_.contains({{id.step, id.micro_batch, id.phase, id.module}, id.call, on_actual});
}

std::vector<std::size_t> Wholes::results_of(const Identity& id) const {
  if (id.slot != "input" && id.slot != "output") return {};
  const auto own = outputs_.find({{id.step, id.micro_batch, id.phase, id.module}, id.call});
  return own == outputs_.end() ? std::vector<std::size_t>() : own->second;
}

}  // namespace assay
