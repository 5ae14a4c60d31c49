#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/causes/values/slice_matching.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

// Slices that lie as densely as the tolerance is wide, or are equal to each other, have matches by accident.
bool ambiguous(const FailingPair& pair, const Reordering& reference, const IndexMap& map,
               const SliceMatch& match, double parameters) {
  std::vector<std::int64_t> moved;
  for (std::size_t j = 0; j < match.source.size(); ++j) {
    if (match.source[j] != static_cast<std::int64_t>(j)) moved.push_back(static_cast<std::int64_t>(j));
  }
  const auto n = static_cast<std::int64_t>(match.source.size());
  const std::int64_t members = pair.actual.size() / n,
                     trials = std::clamp<std::int64_t>(16 * n, 256, 1 << 16);
  double compared = 0, alike = 0;
  for (std::int64_t t = 0; t < trials; ++t) {
    const std::int64_t own = moved[static_cast<std::size_t>(t) % moved.size()];
    const std::int64_t other = (own + 1 + t * 7919 % n) % n;
    if (other == match.source[static_cast<std::size_t>(own)] || other == own) continue;
    bool same = true;
    for (std::int64_t i = 0; same && i < std::min<std::int64_t>(members, 64); ++i) {
      const std::int64_t m = members <= 64 ? i : i * members / 64;
      const std::int64_t base = m / map.inner * n * map.inner + m % map.inner;
      const std::int64_t from = base + other * map.inner;
      same =
          pair.ratio(pair.actual.value(base + own * map.inner), reference.value(from), pair.bound(from)) <= 1;
    }
    ++compared;
    alike += same ? 1 : 0;
  }
  // Fewer than one slice in ten finds a match by accident, or all of them together do not.
  if (alike * static_cast<double>(n) <= 0.1 * compared) return false;
  const double evidence = -std::log2((alike + 1) / (compared + 2)) * static_cast<double>(moved.size());
  return !proves(evidence, parameters);
}

// Whether two of the slices that are wrong look like any slice of the reference, in some of their elements.
bool has_match(const FailingPair& pair, const Reordering& reference, std::int64_t count, std::int64_t inner) {
  const std::int64_t members = pair.actual.size() / count;
  constexpr std::int64_t probed = 16;
  for (const std::size_t probe : {pair.wrong.at.size() / 3, pair.wrong.at.size() - 1}) {
    const std::int64_t own = pair.wrong.at[probe] / inner % count;
    std::vector<std::int64_t> base;
    std::vector<double> values;
    for (std::int64_t t = 0; t < std::min(members, probed); ++t) {
      const std::int64_t m = members <= probed ? t : t * members / probed;
      base.push_back(m / inner * count * inner + m % inner);
      values.push_back(pair.actual.value(base.back() + own * inner));
    }
    bool any = false;
    for (std::int64_t j = 0; !any && j < count; ++j) {
      any = j != own;
      for (std::size_t t = 0; any && t < base.size(); ++t) {
        const std::int64_t from = base[t] + j * inner;
        any = pair.ratio(values[t], reference.value(from), pair.bound(from)) <= 1;
      }
    }
    if (!any) return false;
  }
  return true;
}

bool explain_slices(const FailingPair& pair, const Reordering& reference, std::int64_t count,
                    std::int64_t inner, const std::string& one, const std::string& many,
                    std::vector<Diagnosis>& found) {
  constexpr std::int64_t most = 1 << 18;
  if (count < 2 || count > most || !reference.affordable(inner)) return false;
  if (!has_match(pair, reference, count, inner)) return false;
  const SliceMatch match = match_slices(pair, count, inner);
  if (match.source.empty() || match.moved == 0) return false;
  const IndexMap map{count, inner,
                     [&match](std::int64_t j) { return match.source[static_cast<std::size_t>(j)]; }};
  const PermutationText description = describe_permutation(match, one, many);
  if (!reference.plausible(map) || ambiguous(pair, reference, map, match, description.bits)) return false;
  const auto fit = reference.proven(map, description.bits + 8, pair.over);
  if (!fit) return false;
  CauseParameters p = {.along = one, .how = description.text};
  constexpr std::size_t most_listed = 64;
  if (match.source.size() <= most_listed) p.positions = match.source;
  found.push_back({match.bijective ? Cause::permuted : Cause::repeated, std::move(p), fit->residual});
  return true;
}

}  // namespace

void explain_permuted(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (!pair.finite || looks_offset(pair)) return;
  const Reordering reference(pair, true);
  const Shape& shape = pair.actual.shape();
  std::int64_t inner = pair.actual.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    inner /= shape[d];
    const std::string one = shape.size() == 2   ? (d == 0 ? "row" : "column")
                            : shape.size() == 1 ? "element"
                                                : "slice";
    const std::string many = one + (shape.size() > 2 ? fmt::format("s of dim {}", d) : "s");
    if (explain_slices(pair, reference, shape[d], inner, one, many, found)) return;
  }
  if (shape.size() != 1) return;
  // Single values say too little; blocks of them do not.
  for (const std::int64_t blocks : {2, 3, 4, 6, 8, 12, 16, 32, 64}) {
    if (shape[0] % blocks != 0 || shape[0] / blocks < 4) continue;
    const std::int64_t block = shape[0] / blocks;
    if (explain_slices(pair, reference, blocks, block, fmt::format("block of {} elements", block),
                       fmt::format("blocks of {} elements", block), found))
      return;
  }
}

}  // namespace assay
