#include <fmt/format.h>

#include <algorithm>

#include "assay/compare/causes/values/rotation.h"
#include "assay/operators/engine/list.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

class Rope {
 public:
  Rope(const FailingPair& pair, std::vector<Diagnosis>& found) : pair_(pair), found_(found) {}

  void run() {
    const Shape& shape = pair_.actual.shape();
    if (shape.empty() || pair_.square_gap > pair_.square_slack) return;
    const std::int64_t last = shape.back();
    std::vector<std::int64_t> heads = {last};
    for (const std::int64_t usual : {32, 64, 96, 128, 192, 256}) {
      if (usual < last && last % usual == 0) heads.push_back(usual);
    }
    for (const std::int64_t head : heads) {
      if (head < 4 || head > 4096 || head % 2 != 0) continue;
      std::vector<std::pair<std::int64_t, std::int64_t>> parts = {{0, head}};
      for (const std::int64_t share : {2, 4}) {
        if (head % (2 * share) == 0) parts.emplace_back(0, head / share);
      }
      if (head > 64) parts.emplace_back(head - 64, 64);
      for (const auto& [first, rotated] : parts) {
        for (const bool interleaved : {false, true}) {
          if (rotated >= 4 && explain({head, first, rotated, interleaved})) return;
        }
      }
    }
  }

 private:
  bool explain(Rotation r) {
    std::vector<std::vector<double>> a, g;
    for (std::size_t t = 0; t < 16; ++t) {
      const std::int64_t at = pair_.wrong.at[t * pair_.wrong.at.size() / 16] / r.head * r.head;
      a.push_back(pair_.actual.window(at, r.head).values());
      g.push_back(pair_.reference.window(at, r.head).values());
      if (!keeps_lengths(pair_, r, a.back(), g.back())) return false;
    }
    const auto explains = [&](double yarn) {
      r.yarn = yarn;
      frequencies_ = frequencies_of(r);
      return turns(r, a, g) && proven(r);
    };
    for (const double base : seen_numbers(ops::rope, "base_theta")) {
      r.base = base;
      if (explains(0) || std::ranges::any_of(seen_numbers(ops::rope, "yarn.factor"), explains)) return true;
    }
    return false;
  }

  // Each of these heads is turned by some position.
  bool turns(const Rotation& r, std::span<const std::vector<double>> a,
             std::span<const std::vector<double>> g) const {
    std::vector<double> expected(static_cast<std::size_t>(r.head));
    for (std::size_t t = 0; t < a.size(); ++t) {
      rotate(r, frequencies_, delta_of(r, frequencies_, a[t], g[t]), g[t], expected);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!(pair_.ratio(a[t][i], expected[i], 0) <= 1)) return false;
      }
    }
    return true;
  }

  bool proven(const Rotation& r) {
    const std::int64_t heads = pair_.actual.size() / r.head;
    deltas_.assign(static_cast<std::size_t>(heads), 0);
    std::int64_t turned = 0;
    const Fit fit = verify(pair_, [&](const ElementWindow& w) { turned += expect(r, w); });
    constexpr double bits_of_delta = 17;
    const double parameters = 12 + bits_of_delta * static_cast<double>(std::min(turned, pair_.over));
    if (!convincing(fit, chance(pair_), parameters, pair_.over)) return false;
    CauseParameters p = {.along = pairs_text(r), .rope_base = r.base, .how = describe(r)};
    if (r.yarn > 0) p.yarn_factor = r.yarn;
    if (std::ranges::count(deltas_, deltas_.front()) == heads) p.shift = deltas_.front();
    found_.push_back({Cause::rope_position, std::move(p), fit.residual});
    return true;
  }

  // Windows begin anywhere: the heads at their ends are read whole.
  std::int64_t expect(const Rotation& r, const ElementWindow& w) {
    const auto size = static_cast<std::int64_t>(w.expected.size()), head = r.head;
    const std::int64_t first = w.begin / head, last = (w.begin + size - 1) / head;
    const std::vector<double> a = pair_.actual.window(first * head, (last - first + 1) * head).values();
    const std::vector<double> g = pair_.reference.window(first * head, (last - first + 1) * head).values();
    std::vector<double> expected(static_cast<std::size_t>(head));
    std::int64_t turned = 0;
    for (std::int64_t h = first; h <= last; ++h) {
      const auto begin = static_cast<std::size_t>((h - first) * head),
                 length = static_cast<std::size_t>(head);
      const Head of_a = std::span(a).subspan(begin, length), of_g = std::span(g).subspan(begin, length);
      bool passes = true;
      for (std::size_t i = 0; passes && i < length; ++i)
        passes = pair_.ratio(of_a[i], of_g[i], pair_.bound(h * head + static_cast<std::int64_t>(i))) <= 1;
      const std::int64_t delta = passes ? 0 : delta_of(r, frequencies_, of_a, of_g);
      deltas_[static_cast<std::size_t>(h)] = delta;
      turned += delta != 0 ? 1 : 0;
      rotate(r, frequencies_, delta, of_g, expected);
      for (std::int64_t i = 0; i < head; ++i) {
        const std::int64_t at = h * head + i - w.begin;
        if (at >= 0 && at < size)
          w.expected[static_cast<std::size_t>(at)] = expected[static_cast<std::size_t>(i)];
      }
    }
    return turned;
  }

  std::string pairs_text(const Rotation& r) const {
    const std::string layout = r.interleaved ? "pairs (2j, 2j+1)" : "the two halves";
    if (r.rotated == r.head) return fmt::format("{} of each {} elements", layout, r.head);
    return fmt::format("{} of elements {}..{} of each {}", layout, r.first, r.first + r.rotated - 1, r.head);
  }

  // The dimension along which Delta changes, if it is one: -1 if it is constant, -2 if there is none.
  int dimension_of_positions(const Rotation& r, std::vector<std::int64_t>& by_index) const {
    const Shape& shape = pair_.actual.shape();
    const bool constant = std::ranges::all_of(deltas_, [this](std::int64_t d) { return d == deltas_[0]; });
    if (constant) return -1;
    std::int64_t inner = pair_.actual.size() / r.head;
    for (std::size_t d = 0; d + 1 < shape.size(); ++d) {
      inner /= shape[d];
      const auto index = [&](std::size_t h) {
        return static_cast<std::size_t>(static_cast<std::int64_t>(h) / inner % shape[d]);
      };
      by_index.assign(static_cast<std::size_t>(shape[d]), 0);
      for (std::size_t h = 0; h < deltas_.size(); ++h) by_index[index(h)] = deltas_[h];
      bool depends = true;
      for (std::size_t h = 0; depends && h < deltas_.size(); ++h) depends = by_index[index(h)] == deltas_[h];
      if (depends) return static_cast<int>(d);
    }
    return -2;
  }

  std::string describe(const Rotation& r) const {
    std::vector<std::int64_t> by_index;
    const int dim = dimension_of_positions(r, by_index);
    const auto off = [](std::int64_t delta) {
      return fmt::format("{} too {}", std::abs(delta), delta > 0 ? "large" : "small");
    };
    if (dim == -1) return fmt::format("every position is {}", off(deltas_[0]));
    if (dim == -2) {
      const auto wrong = std::ranges::count_if(deltas_, [](std::int64_t d) { return d != 0; });
      const auto first = std::ranges::find_if(deltas_, [](std::int64_t d) { return d != 0; });
      return fmt::format("the position of {} of {} heads is wrong, that of head {} is {}", wrong,
                         deltas_.size(), first - deltas_.begin(), off(*first));
    }
    bool none = true, twice = true;
    for (std::size_t t = 0; t < by_index.size(); ++t) {
      none = none && by_index[t] == by_index[0] - static_cast<std::int64_t>(t);
      twice = twice && by_index[t] == by_index[0] + static_cast<std::int64_t>(t);
    }
    if (none)
      return fmt::format("all of dim {} have one position: index i is {}{} too small, as if not rotated", dim,
                         by_index[0] == 0 ? "" : fmt::format("{} + ", -by_index[0]), "i");
    if (twice)
      return fmt::format("index i of dim {} is {}i too large, as if rotated twice", dim,
                         by_index[0] == 0 ? "" : fmt::format("{} + ", by_index[0]));
    std::string text;
    int runs = 0;
    for (std::size_t t = 0; t < by_index.size();) {
      std::size_t end = t;
      while (end < by_index.size() && by_index[end] == by_index[t]) ++end;
      if (by_index[t] != 0 && ++runs <= 3) {
        text += fmt::format("{}index {} of dim {} is at a position {}", runs == 1 ? "" : "; ",
                            end - t == 1 ? fmt::format("{}", t) : fmt::format("{}..{}", t, end - 1), dim,
                            off(by_index[t]));
      }
      t = end;
    }
    return text + (runs > 3 ? fmt::format("; and {} more runs", runs - 3) : "");
  }

  const FailingPair& pair_;
  std::vector<Diagnosis>& found_;
  std::vector<double> frequencies_;
  std::vector<std::int64_t> deltas_;  // by head
};

}  // namespace

void explain_rope(const FailingPair& pair, std::vector<Diagnosis>& found) {
  if (pair.finite && is_float(pair.actual.dtype())) Rope(pair, found).run();
}

}  // namespace assay
