#include "assay/align/faults/fault.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "assay/align/faults/catalogue.h"
#include "assay/golden/error.h"

namespace assay::align {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 8> kinds = {"scale", "partial", "zero", "weights",
                                                   "add",   "perm",    "norm", "none"};

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

namespace {

// What the strategy of the catalogue has that a single device has not, another one must have too.
std::vector<std::string_view> missing(const Parallel& shown, const Parallel& p) {
  std::vector<std::string_view> all;
  const auto expect = [&](std::string_view key, bool wanted, bool is_there) {
    if (wanted && !is_there) all.push_back(key);
  };
  expect("tp > 1", shown.tp > 1, p.tp > 1);
  expect("sp=1", shown.sp, p.sp);
  expect("cp > 1", shown.cp > 1, p.cp > 1);
  expect("its context", shown.cp > 1 && p.cp > 1, shown.context == p.context);
  expect("dp > 1", shown.dp > 1, p.dp > 1);
  expect("zero", shown.zero > 0, p.zero > 0);
  expect("pp > 1", shown.pp > 1, p.pp > 1);
  expect("vpp > 1", shown.vpp > 1, p.vpp > 1);
  expect("ep > 1", shown.ep > 1, p.ep > 1);
  expect("its dispatch", shown.ep > 1 && p.ep > 1, shown.dispatch == p.dispatch);
  expect("etp > 1", shown.etp > 1, p.etp > 1);
  expect("recompute", shown.recompute != Recompute::none, p.recompute != Recompute::none);
  return all;
}

}  // namespace

bool shows(const Fault& fault, const Parallel& p) {
  return missing(parse_parallel(fault.conditions.parallel), p).empty();
}

void check_fault(const Fault& fault, const Parallel& p) {
  const auto lacking = missing(parse_parallel(fault.conditions.parallel), p);
  if (!lacking.empty())
    throw Error("fault {} does not show under '{}', which lacks {}; it does under --parallel {}", fault.id,
                to_string(p), fmt::join(lacking, ", "), fault.conditions.parallel);
}

}  // namespace assay::align
