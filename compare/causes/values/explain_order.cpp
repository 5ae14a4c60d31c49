#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "assay/compare/causes/values/index_map.h"

namespace assay {
namespace {

std::string dim_name(const Shape& shape, std::size_t d, std::string_view plural_or_not) {
  if (shape.size() == 2) return fmt::format("{}{}", d == 0 ? "row" : "column", plural_or_not);
  return shape.size() == 1 ? fmt::format("element{}", plural_or_not)
                           : fmt::format("slice{} of dim {}", plural_or_not, d);
}

std::int64_t product(const Shape& shape, std::size_t from, std::size_t to) {
  std::int64_t n = 1;
  for (std::size_t d = from; d < to; ++d) n *= shape[d];
  return n;
}

class Order {
 public:
  Order(const FailingPair& pair, std::vector<Diagnosis>& found)
      : pair_(pair), shape_(pair.actual.shape()), reordering_(pair), found_(found) {}

  void run() {
    if (transposed() || reversed() || rolled_or_shifted()) return;
    interleaved();
  }

 private:
  bool same_elements() const { return pair_.square_gap <= pair_.square_slack; }

  bool found(const IndexMap& map, double bits, Cause cause, auto&& parameters) {
    if (!reordering_.plausible(map)) return false;
    const auto fit = reordering_.proven(map, bits, pair_.over);
    if (!fit) return false;
    found_.push_back({cause, parameters(), fit->residual});
    return true;
  }

  // Dims [i, j) and [j, k) exchanged and read in the old shape.
  bool transposed() {
    if (!same_elements()) return false;
    const std::size_t n = shape_.size();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        for (std::size_t k = j + 1; k <= n; ++k) {
          const std::int64_t rows = product(shape_, i, j), columns = product(shape_, j, k),
                             inner = product(shape_, k, n);
          if (rows == 1 || columns == 1) continue;
          const bool square = j == i + 1 && k == j + 1 && rows == columns;
          for (const std::int64_t m : {columns, rows}) {
            const std::int64_t c = rows * columns / m;
            const IndexMap map{rows * columns, inner, [c, m](std::int64_t x) { return x % c * m + x / c; }};
            if (found(map, 8, Cause::transposed, [&]() -> CauseParameters {
                  if (square)
                    return {.how = n == 2 ? std::string("the matrix is transposed")
                                          : fmt::format("dims {} and {} are transposed", i, j)};
                  const std::string which = k - i == 2
                                                ? fmt::format("dims {} and {}", i, j)
                                                : fmt::format("dims {}..{} and {}..{}", i, j - 1, j, k - 1);
                  return {
                      .how = m == columns
                                 ? fmt::format("holds the elements in the order of the transpose: {} "
                                               "were exchanged, then the result was read in the old shape",
                                               which)
                                 : fmt::format("holds the elements as if the memory were of the exchanged {}",
                                               which)};
                }))
              return true;
          }
        }
      }
    }
    return false;
  }

  bool reversed() {
    if (!same_elements()) return false;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const std::int64_t n = shape_[d];
      if (n < 2) continue;
      const IndexMap map{n, product(shape_, d + 1, shape_.size()), [n](std::int64_t j) { return n - 1 - j; }};
      if (found(map, 8, Cause::permuted, [&]() -> CauseParameters {
            const std::string slices = dim_name(shape_, d, "s");
            return {.along = slices, .how = fmt::format("the {} are in reversed order", slices)};
          }))
        return true;
    }
    return false;
  }

  // Within each group of c * m blocks, block i holds what is block (i % c) * m + i / c: gate and up, the
  // heads of q, k and v, the halves and the pairs of a rotation, stored in each other's way.
  bool interleaved() {
    if (!same_elements()) return false;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const std::int64_t n = shape_[d], inner = product(shape_, d + 1, shape_.size());
      constexpr std::int64_t most = 1 << 24;
      if (n < 4 || n > most) continue;
      std::vector<std::int64_t> divisors;
      for (std::int64_t c = 1; c * c <= n; ++c) {
        if (n % c != 0) continue;
        divisors.push_back(c);
        if (c != n / c) divisors.push_back(n / c);
      }
      constexpr std::size_t most_divisors = 100;  // their triples are tried
      if (divisors.size() > most_divisors) continue;
      std::ranges::sort(divisors);
      for (const std::int64_t block : divisors) {
        for (const std::int64_t c : divisors) {
          if (c < 2 || n % (block * c) != 0) continue;
          for (const std::int64_t m : divisors) {
            if (m < 2 || n % (block * c * m) != 0) continue;
            const IndexMap map{c * m, inner * block, [c, m](std::int64_t i) { return i % c * m + i / c; }};
            if (found(map, 12, Cause::permuted, [&] { return interleaving(d, n, block, c, m); })) return true;
          }
        }
      }
    }
    return false;
  }

  CauseParameters interleaving(std::size_t d, std::int64_t n, std::int64_t block, std::int64_t c,
                               std::int64_t m) const {
    const std::string unit =
        block == 1 ? dim_name(shape_, d, "") : fmt::format("block of {} {}", block, dim_name(shape_, d, "s"));
    const std::string within = n == block * c * m ? "" : fmt::format("within each group of {}, ", c * m);
    return {.along = unit,
            .how = fmt::format("interleaved: {}{} i holds the reference's (i % {}) * {} + i / {}", within,
                               unit, c, m, c)};
  }

  // Where the run of elements around a wrong one stands in the reference.
  std::vector<std::int64_t> offsets() const {
    const std::int64_t size = pair_.actual.size();
    const std::int64_t length = size < 64 ? 3 : 8;
    struct Probe {
      std::int64_t at;
      std::vector<double> values, slack;
      int matches = 0;
    };
    std::vector<Probe> probes;
    constexpr std::size_t most_probes = 8;
    const std::size_t tries = std::min<std::size_t>(64, pair_.wrong.at.size());
    for (std::size_t t = 0; t < tries && probes.size() < most_probes; ++t) {
      // From both ends and the middle.
      const std::int64_t at = pair_.wrong.at[(t * 37 % tries) * pair_.wrong.at.size() / tries];
      if (at + length > size) continue;
      Probe p{at, pair_.actual.window(at, length).values(), {}, 0};
      std::vector<double> different = p.values;
      std::ranges::sort(different);
      const auto distinct = std::unique(different.begin(), different.end()) - different.begin();
      if (distinct * 2 <= length) continue;
      for (const double v : p.values) p.slack.push_back(pair_.allowed(v, pair_.bound(at)));
      probes.push_back(std::move(p));
    }
    std::map<std::int64_t, int> votes;
    constexpr std::int64_t step = 1 << 14;
    for (std::int64_t begin = 0; begin + length <= size; begin += step) {
      const std::int64_t count = std::min(step + length - 1, size - begin);
      const std::vector<double> r = pair_.reference.window(begin, count).values();
      for (Probe& p : probes) {
        const double first = p.values[0], slack = p.slack[0];
        for (std::size_t i = 0; i + static_cast<std::size_t>(length) <= r.size(); ++i) {
          if (!(std::abs(r[i] - first) <= slack)) continue;
          std::size_t k = 1;
          while (k < p.values.size() && std::abs(r[i + k] - p.values[k]) <= p.slack[k]) ++k;
          if (k < p.values.size() || ++p.matches > 4) continue;
          ++votes[p.at - (begin + static_cast<std::int64_t>(i))];
        }
      }
    }
    std::vector<std::pair<int, std::int64_t>> ranked;
    for (const auto& [offset, count] : votes) {
      if (offset != 0) ranked.emplace_back(-count, offset);
    }
    std::ranges::sort(ranked, {}, [](const auto& v) { return std::pair(v.first, std::abs(v.second)); });
    std::vector<std::int64_t> best;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, ranked.size()); ++i)
      best.push_back(ranked[i].second);
    return best;
  }

  bool rolled_or_shifted() {
    if (pair_.actual.size() < 6) return false;
    struct Move {
      std::int64_t count, inner, by;
      std::string what;
    };
    std::vector<Move> moves;
    for (const std::int64_t offset : offsets()) {
      std::int64_t inner = pair_.actual.size();
      for (std::size_t d = 0; d < shape_.size(); ++d) {
        inner /= shape_[d];
        const bool whole = offset % inner == 0 && std::abs(offset / inner) < shape_[d];
        if (whole) moves.push_back({shape_[d], inner, offset / inner, dim_name(shape_, d, "s")});
      }
      if (shape_.size() > 1) moves.push_back({pair_.actual.size(), 1, offset, "elements in memory"});
    }
    // What explains all of the tensor comes before what leaves a rest.
    for (const auto& m : moves) {
      if (rolled(m.count, m.inner, m.by, m.what)) return true;
    }
    for (const bool zero : {true, false}) {
      for (const auto& m : moves) {
        if (shifted(m.count, m.inner, m.by, m.what, zero)) return true;
      }
    }
    return false;
  }

  bool rolled(std::int64_t n, std::int64_t inner, std::int64_t s, const std::string& what) {
    if (!same_elements()) return false;
    const std::int64_t forward = (s + n) % n, signed_shift = forward * 2 <= n ? forward : forward - n;
    const IndexMap map{n, inner, [n, forward](std::int64_t j) { return (j - forward + n) % n; }};
    return found(map, bits_of_position(), Cause::permuted, [&]() -> CauseParameters {
      return {
          .along = what,
          .shift = signed_shift,
          .how = fmt::format("the {} are rolled by {}: index {} holds the reference's 0, with wrap-around",
                             what, signed_shift, forward)};
    });
  }

  bool shifted(std::int64_t n, std::int64_t inner, std::int64_t s, const std::string& what, bool zero) {
    if (std::abs(s) * 2 > n) return false;
    const std::int64_t lost = pair_.actual.size() / n * std::abs(s);
    const IndexMap map{n, inner, [n, s](std::int64_t j) { return j - s >= 0 && j - s < n ? j - s : -1; },
                       zero};
    if (!reordering_.plausible(map)) return false;
    const auto fit =
        reordering_.proven(map, bits_of_position(), std::max<std::int64_t>(0, pair_.over - lost));
    if (!fit) return false;
    CauseParameters p = {.along = what, .shift = s};
    if (zero) p.value = 0;
    found_.push_back({Cause::shifted, std::move(p), fit->residual});
    return true;
  }

  double bits_of_position() const { return std::log2(static_cast<double>(pair_.actual.size())) + 4; }

  const FailingPair& pair_;
  const Shape& shape_;
  Reordering reordering_;
  std::vector<Diagnosis>& found_;
};

}  // namespace

void explain_order(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (pair.finite && !looks_offset(pair)) Order(pair, found).run();
}

}  // namespace assay
