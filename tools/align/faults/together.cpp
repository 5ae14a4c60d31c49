#include "assay/align/faults/together.h"

#include <algorithm>

#include "assay/golden/error.h"

namespace assay::align {
namespace {

template <class... Args>
using Site = std::function<void(Args...)>;

template <class... Args>
Site<Args...> joined(const Site<Args...>& a, const Site<Args...>& b) {
  if (!a || !b) return a ? a : b;
  return [a, b](Args... args) {
    a(args...);
    b(args...);
  };
}

FaultSites joined(const FaultSites& a, const FaultSites& b) {
  FaultSites all;
  const auto join = [&](auto... sites) { ((all.*sites = joined(a.*sites, b.*sites)), ...); };
  using F = FaultSites;
  join(&F::before_call, &F::after_call, &F::exchanged, &F::loaded, &F::stage, &F::indices, &F::parameter,
       &F::loss_share, &F::received, &F::contribution, &F::reduction, &F::gradient, &F::own_loads, &F::loads,
       &F::norm_counts, &F::norm, &F::clip, &F::before_update, &F::after_update);
  all.taken_for = a.taken_for ? a.taken_for : b.taken_for;
  if (a.taken_for && b.taken_for)
    all.taken_for = [a, b](const std::string& parameter) { return b.taken_for(a.taken_for(parameter)); };
  all.movement = a.movement ? a.movement : b.movement;
  if (a.movement && b.movement)
    all.movement = [a, b](const Moment& moment, const Machine::Node& node, const Movement& movement,
                          const Tensor& x, const F::Move& right) {
      const auto moved = a.movement(moment, node, movement, x, right);
      return moved ? moved : b.movement(moment, node, movement, x, right);
    };
  return all;
}

}  // namespace

std::vector<const Fault*> faults_named(std::string_view ids) {
  std::vector<const Fault*> faults;
  for (std::size_t begin = 0; begin <= ids.size();) {
    const std::size_t end = std::min(ids.find(',', begin), ids.size());
    const Fault* fault = &find_fault(ids.substr(begin, end - begin));
    if (std::ranges::find(faults, fault) != faults.end())
      throw Error("fault {} is named twice in '{}'; expected each once", fault->id, ids);
    faults.push_back(fault);
    begin = end + 1;
  }
  return faults;
}

PlantFault together(const std::vector<const Fault*>& faults) {
  if (faults.empty()) return {};
  return [faults](const FaultScene& scene) {
    FaultSites all;
    for (const Fault* f : faults) all = joined(all, f->plant(scene));
    return all;
  };
}

}  // namespace assay::align
