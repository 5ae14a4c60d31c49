#include "assay/compare/origin/differing_inputs.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay {
namespace {

// A rule that is absolute for small values says nothing of them: its relative part must hold of the whole.
bool is_right(const Finding& f) {
  if (f.verdict == Verdict::exempt) return f.exemption->kind == Exemption::Kind::amplified_rounding;
  return f.verdict == Verdict::passed && f.metrics && (!(f.rtol > 0) || f.metrics->relative_l2 <= f.rtol);
}

}  // namespace

std::optional<Exemption> explained_by_inputs(const std::vector<Finding>& findings,
                                             const std::vector<Pair>& pairs, std::size_t i, const Inputs& all,
                                             LocalErrors& local, const Exemption& right) {
  const std::vector<std::size_t> inputs = all.of(i);
  if (findings[i].asks_for_bits || inputs.empty() ||
      !std::ranges::all_of(inputs, [&](std::size_t k) { return is_right(findings[k]); }))
    return {};
  Exemption exemption = right;
  exemption.source += "; its inputs are right by their rules";
  if (!local.has_call(pairs[i])) return exemption;
  const auto beside = local.beside_random_inputs(pairs[i]);
  if (!beside || !(*beside <= 1)) return {};
  exemption.source += fmt::format(
      ", and such differences, up and down at random, explain its own (difference/explained {:.3g})",
      *beside);
  return exemption;
}

}  // namespace assay
