#include "assay/compare/causes/values/index_map.h"

#include <algorithm>

namespace assay {

Reordering::Reordering(const FailingPair& pair, bool any_place)
    : pair_(pair), chance_(chance(pair, 1, !any_place)) {
  constexpr std::size_t most_bytes = std::size_t{48} << 20;
  const auto bytes = static_cast<std::size_t>(pair.reference.size()) * size_of(pair.reference.dtype());
  if (pair.reference.lies_whole() || bytes <= most_bytes) whole_ = pair.reference.whole();
}

double Reordering::value(std::int64_t position) const {
  return whole_ ? whole_->value(position) : pair_.reference.value(position);
}

bool Reordering::plausible(const IndexMap& map) const {
  if (!affordable(map.inner)) return false;
  const std::size_t tries = std::min<std::size_t>(64, pair_.wrong.at.size());
  for (std::size_t t = 0; t < tries; ++t) {
    const std::size_t i = t * pair_.wrong.at.size() / tries;
    const std::int64_t from = map(pair_.wrong.at[i]);
    if (from < 0 && !map.zero_elsewhere) continue;
    const double expected = from < 0 ? 0 : value(from), bound = from < 0 ? 0 : pair_.bound(from);
    if (!(pair_.ratio(pair_.wrong.actual[i], expected, bound) <= 1)) return false;
  }
  return true;
}

std::optional<Fit> Reordering::proven(const IndexMap& map, double parameters, std::int64_t explained) const {
  const Fit fit = verify(pair_, [&](const ElementWindow& w) {
    const auto size = static_cast<std::int64_t>(w.expected.size());
    for (std::int64_t i = 0; i < size;) {
      const std::int64_t at = w.begin + i, from = map(at);
      const std::int64_t run = std::min(size - i, map.inner - at % map.inner);
      const auto first = static_cast<std::size_t>(i), length = static_cast<std::size_t>(run);
      if (from < 0) {
        for (std::size_t k = first; k < first + length; ++k) {
          w.expected[k] = map.zero_elsewhere ? 0 : w.actual[k];
          w.bound[k] = 0;
        }
      } else {
        if (run < 16 && whole_) {
          for (std::int64_t k = 0; k < run; ++k)
            w.expected[first + static_cast<std::size_t>(k)] = whole_->value(from + k);
        } else {
          const Tensor part = pair_.reference.window(from, run);
          decode(part.dtype(), part.bytes(), w.expected.subspan(first, length));
        }
        for (std::int64_t k = 0; k < run; ++k)
          w.bound[first + static_cast<std::size_t>(k)] = pair_.bound(from + k);
      }
      i += run;
    }
  });
  if (!convincing(fit, chance_, parameters, explained)) return std::nullopt;
  return fit;
}

}  // namespace assay
