#include "assay/compare/causes/optimizer/left_behind.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "assay/compare/causes/values/elements.h"
#include "assay/compare/flow/gradient_names.h"
#include "assay/compare/pairs/tensors_by_id.h"
#include "assay/compare/result/trouble.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Elements that are not what they were before the step; nothing where that was not recorded.
std::optional<std::int64_t> changed(const Dump& dump, const TensorsById& tensors,
                                    const LogicalTensor& after) {
  const Identity& id = after.id;
  const LogicalTensor* before =
      tensors.with_values(dump, {id.step, -1, Phase::forward, id.module, id.slot, id.arg, 0});
  if (before == nullptr || before->shape != after.shape) return {};
  const TensorSource old_values = merge(dump, *before).tensor, new_values = merge(dump, after).tensor;
  std::int64_t count = 0;
  for_each_element({&old_values, &new_values},
                   [&](std::int64_t, const double* x) { count += x[0] == x[1] ? 0 : 1; });
  return count;
}

// Why a side leaves a parameter as it was: ": the actual side has no gradient of it".
std::string why_frozen(std::string_view side, const std::vector<LogicalTensor>& tensors, const Identity& id) {
  const auto has = [&](Phase phase, std::string_view slot, std::string_view begin) {
    return std::ranges::any_of(tensors, [&](const LogicalTensor& t) {
      return t.id.step == id.step && t.id.phase == phase && t.id.slot == slot && t.id.module == id.module &&
             t.id.arg.starts_with(begin);
    });
  };
  if (!has(Phase::backward, "grad", id.arg)) return fmt::format(": {} has no gradient of it", side);
  return has(Phase::optimizer, "state", id.arg + ".")
             ? ""
             : fmt::format(": the optimizer has no state of it on {}", side);
}

}  // namespace

void find_left_behind(std::vector<Finding>& findings, const std::vector<Pair>& pairs, const Sides& sides,
                      StepOrigins& origins) {
  const TensorsById of_actual(sides.actual_tensors), of_reference(sides.reference_tensors);
  // A parameter beside a master is a copy of what was stepped.
  std::set<std::tuple<std::int64_t, std::string, std::string>> judged;
  for (const auto& [i, origin] : origins) {
    const Identity& id = findings[i].id;
    judged.emplace(id.step, id.module, id.slot == "state" ? id.arg.substr(0, id.arg.rfind('.')) : id.arg);
  }
  std::map<Identity, std::size_t> without_gradient;  // parameters
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Identity id = pairs[i].id();
    if (pairs[i].actual != nullptr || !is_whole_gradient(id)) continue;
    id.phase = Phase::optimizer;
    id.slot = "param";
    without_gradient.emplace(std::move(id), i);
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    Finding& f = findings[i];
    const bool is_parameter = f.id.phase == Phase::optimizer && f.id.slot == "param" && f.metrics &&
                              is_float(f.actual_dtype) && pair.actual != nullptr && pair.reference != nullptr;
    if (!is_parameter || f.metrics->different_bits == 0 ||
        judged.contains({f.id.step, f.id.module, f.id.arg}))
      continue;
    (void)trouble_in([&] {
      const auto actual = changed(sides.actual, of_actual, *pair.actual);
      const auto reference = changed(sides.reference, of_reference, *pair.reference);
      if (!actual || !reference) return;
      // An element whose change is a rounding away from none stays as often as not.
      const bool is_frozen = *actual == 0 && proves(static_cast<double>(*reference), 0),
                 is_thawed = *reference == 0 && proves(static_cast<double>(*actual), 0);
      if (!is_frozen && !is_thawed) return;
      const std::int64_t size = f.metrics->elements;
      std::string how =
          is_frozen
              ? fmt::format("not one of {} elements is updated, where the reference updates {}{}", size,
                            *reference, why_frozen("the actual side", sides.actual_tensors, f.id))
              : fmt::format("{} of {} elements are updated, where the reference leaves all as they were{}",
                            *actual, size, why_frozen("the reference", sides.reference_tensors, f.id));
      f.diagnoses.push_back(
          {is_frozen ? Cause::not_updated : Cause::updated,
           {.elements = is_frozen ? size : *actual, .of = size, .step = f.id.step, .how = std::move(how)},
           0});
      origins[i] = {infinity,
                    is_frozen ? "it is the parameter before the step"
                              : "it is not the parameter before the step, as it is in the reference",
                    {}};
      if (const auto root = without_gradient.find(f.id); is_frozen && root != without_gradient.end())
        origins[i].root = root->second;
    });
  }
}

}  // namespace assay
