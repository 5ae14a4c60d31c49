#include "assay/compare/origin/differing_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "assay/compare/origin/propagated_error.h"
#include "assay/compare/result/trouble.h"

namespace assay {
namespace {

// A rule that is absolute for small values says nothing of them: on its own scale the whole must be within
// it.
bool is_right(const Finding& f) {
  if (f.verdict == Verdict::exempt) return f.exemption->kind == Exemption::Kind::amplified_rounding;
  if (f.verdict != Verdict::passed || !f.metrics) return false;
  if (f.id.slot == "param") return true;
  const Allowed own = on_its_own_scale(f);
  const double usual = std::hypot(f.metrics->reference.mean, f.metrics->reference.std);
  return !(own.rtol > 0) || f.metrics->relative_l2 * usual <= own.atol + own.rtol * usual;
}

bool sides_differ_as_one(const Sides& sides, const Pair& pair) {
  const Tensor a = merge(sides.actual, *pair.actual).tensor.whole(),
               r = merge(sides.reference, *pair.reference).tensor.whole();
  return a.size() == r.size() && is_float(a.dtype()) && differs_as_one(a.values(), r.values());
}

}  // namespace

std::optional<Exemption> explained_by_inputs(const std::vector<Finding>& findings,
                                             const std::vector<Pair>& pairs, std::size_t i, const Inputs& all,
                                             LocalErrors& local, const Exemption& right) {
  const std::vector<std::size_t> inputs = all.of(i);
  // What is exempt was explained before; where it is nothing but roundings, each side has its own.
  const auto is_rounded = [&](std::size_t k) {
    const Finding& f = findings[k];
    return is_right(f) && (f.verdict == Verdict::exempt || f.metrics->different_bits == 0 ||
                           !sides_differ_as_one(local.sides(), pairs[k]));
  };
  if (findings[i].asks_for_bits || inputs.empty()) return {};
  bool are_rounded = false;
  if (trouble_in([&] { are_rounded = std::ranges::all_of(inputs, is_rounded); }) || !are_rounded) return {};
  Exemption exemption = right;
  exemption.source += "; its inputs are right by their rules";
  if (!local.has_call(pairs[i])) {
    if (findings[i].id.phase == Phase::optimizer) return exemption;
    std::vector<Pair> given;
    for (const std::size_t k : inputs) given.push_back(pairs[k]);
    std::optional<PropagatedError> found;
    if (trouble_in([&] { found = propagated_error(local.sides(), pairs[i], given); }) || !found) return {};
    return exemption;
  }
  const auto beside = local.beside_random_inputs(pairs[i]);
  if (!beside || !(*beside <= 1)) return {};
  exemption.source += fmt::format(
      ", and such differences, up and down at random, explain its own (difference/explained {:.3g})",
      *beside);
  return exemption;
}

}  // namespace assay
