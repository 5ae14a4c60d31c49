#include "assay/compare/causes/optimizer/left_behind.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <tuple>

#include "assay/compare/causes/values/elements.h"
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
      // An element whose change is a rounding away from none stays as often as not.
      if (!actual || !reference || *actual > 0 || !proves(static_cast<double>(*reference), 0)) return;
      const std::int64_t size = f.metrics->elements;
      f.diagnoses.push_back({Cause::not_updated,
                             {.elements = size,
                              .of = size,
                              .step = f.id.step,
                              .how = fmt::format("not one of {} elements is updated, where the reference "
                                                 "updates {}",
                                                 size, *reference)},
                             0});
      origins[i] = {infinity, "it is the parameter before the step", {}};
    });
  }
}

}  // namespace assay
