#include "assay/align/faults/fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "assay/align/faults/catalogue.h"
#include "assay/align/settings/strategy.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 9> kinds = {"scale", "partial", "zero", "weights", "add",
                                                   "perm",  "norm",    "call", "none"};

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const auto& area :
       {reduction_faults, loss_scale_faults, expert_faults, position_faults, stage_faults, recompute_faults,
        zero_faults, norm_faults, optimizer_faults, precision_faults, constant_faults}) {
    std::vector<Fault> more = area();
    std::ranges::move(more, std::back_inserter(all));
  }
  std::ranges::sort(all, {}, &Fault::id);
  return all;
}

}  // namespace

std::string_view name(FaultKind kind) {
  return kinds[static_cast<std::size_t>(kind)];
}

bool is_named(const FaultAnswer& answer, const Diagnosis& found) {
  return answer.causes.empty() || std::ranges::any_of(answer.causes, [&](const Diagnosis& expected) {
           return agrees(found, expected);
         });
}

const std::vector<Fault>& fault_catalogue() {
  static const std::vector<Fault> all = all_faults();
  return all;
}

const Fault& find_fault(std::string_view id) {
  const auto at = std::ranges::find(fault_catalogue(), id, &Fault::id);
  if (at != fault_catalogue().end()) return *at;
  throw Error("there is no fault '{}'; expected one of {} to {}; assay faults lists them", id,
              fault_catalogue().front().id, fault_catalogue().back().id);
}

bool shows(const Fault& fault, const Parallel& p) {
  return lacking(parse_parallel(fault.conditions.parallel), p).empty();
}

void check_fault(const Fault& fault, const Parallel& p) {
  const auto missing = lacking(parse_parallel(fault.conditions.parallel), p);
  if (!missing.empty())
    throw Error("fault {} does not show under '{}', which lacks {}; it does under --parallel {}", fault.id,
                to_string(p), fmt::join(missing, ", "), fault.conditions.parallel);
}

}  // namespace assay::align
