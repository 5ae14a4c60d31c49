// A tensor that ranks hold in pieces, whose pieces were added up or exchanged.
#include <fmt/format.h>

#include <cmath>

#include "assay/compare/causes/values/other_tensor.h"
#include "assay/golden/evidence.h"

namespace assay {
namespace {

constexpr std::int64_t most_elements = 1 << 22;  // read whole

// A dimension cut into n pieces of `inner` elements, so many times.
struct Cut {
  std::size_t dim;
  std::int64_t n, inner;
  std::int64_t piece_of(std::int64_t at) const { return at / inner % n; }
  std::int64_t in_piece(std::int64_t at, std::int64_t piece) const {
    return at + (piece - piece_of(at)) * inner;
  }
};

// By the sizes of the run.
std::vector<Cut> cuts_of(const FailingPair& pair) {
  std::vector<Cut> cuts;
  const Shape& shape = pair.actual.shape();
  if (!pair.finite || pair.actual.size() > most_elements) return cuts;
  std::int64_t inner = pair.actual.size();
  for (std::size_t d = 0; d < shape.size() && pair.actual.size() > 0; ++d) {
    const std::int64_t behind = inner / shape[d];
    for (const KnownSize& s : pair.context.sizes) {
      const bool is_known =
          std::ranges::any_of(cuts, [&](const Cut& c) { return c.dim == d && c.n == s.size; });
      if (s.size > 1 && shape[d] % s.size == 0 && !is_known)
        cuts.push_back({d, s.size, shape[d] / s.size * behind});
    }
    inner = behind;
  }
  return cuts;
}

bool explains_pieces(const Fit& fit) {
  constexpr double quarter = 16;  // of squares
  return fit.residual <= 1 && fit.after * quarter <= fit.before;
}

std::string along(const FailingPair& pair, const Cut& cut) {
  const bool is_matrix = pair.actual.shape().size() == 2;
  return is_matrix ? (cut.dim == 0 ? "rows" : "columns") : fmt::format("dim {}", cut.dim);
}

}  // namespace

void explain_sum_of_pieces(const FailingPair& pair, std::vector<Diagnosis>& found) {
  const std::vector<Cut> cuts = cuts_of(pair);
  if (cuts.empty() || !proves(evidence(pair), std::log2(static_cast<double>(cuts.size())))) return;
  const std::vector<double> reference = pair.reference.whole().values();
  for (const Cut& cut : cuts) {
    const Fit fit = verify(pair, [&](const ElementWindow& w) {
      for (std::size_t i = 0; i < w.expected.size(); ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < cut.n; ++k)
          sum += reference[static_cast<std::size_t>(cut.in_piece(w.begin + static_cast<std::int64_t>(i), k))];
        w.expected[i] = sum;
      }
    });
    if (!explains_pieces(fit)) continue;
    found.push_back({Cause::sum_of_pieces, {.of = cut.n, .along = along(pair, cut)}, fit.residual});
    return;
  }
}

std::optional<Pieces> pieces_of(const FailingPair& pair, const TensorSource& other, std::size_t tried) {
  const std::vector<Cut> cuts = cuts_of(pair);
  if (cuts.empty()) return {};
  const std::vector<double> a = pair.actual.whole().values(), r = pair.reference.whole().values(),
                            o = other.whole().values();
  for (const Cut& cut : cuts) {
    // Which piece of the other tensor each piece is; -1: its own.
    std::vector<std::int64_t> from(static_cast<std::size_t>(cut.n), -1);
    const auto holds = [&](std::int64_t piece, std::int64_t source) {
      for (std::int64_t at = 0; at < pair.actual.size(); ++at) {
        if (cut.piece_of(at) != piece) continue;
        const auto i = static_cast<std::size_t>(at);
        const double expected = source < 0 ? r[i] : o[static_cast<std::size_t>(cut.in_piece(at, source))];
        if (!(pair.ratio(a[i], expected, pair.bound(at)) <= 1)) return false;
      }
      return true;
    };
    bool all = true;
    std::vector<std::int64_t> positions;
    for (std::int64_t piece = 0; piece < cut.n && all; ++piece) {
      std::int64_t source = -1;
      while (source < cut.n && !holds(piece, source)) ++source;
      all = source < cut.n;
      if (source >= 0) positions.push_back(piece);
    }
    const double parameters = std::log2(static_cast<double>(tried * cuts.size())) +
                              static_cast<double>(cut.n) * std::log2(static_cast<double>(cut.n + 1));
    if (all && !positions.empty() && proves(evidence(pair), parameters))
      return Pieces{along(pair, cut), cut.n, std::move(positions)};
  }
  return {};
}

}  // namespace assay
