#include "assay/operators/engine/adaptive_pool.h"

#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/pool.h"

namespace assay {

AdaptiveWindows adaptive_windows(std::string_view op, const Shape& x, const Attributes& a) {
  if (!a.has("output_size")) throw Error("{}: attribute 'output_size' is missing", op);
  const bool number = std::holds_alternative<double>(a.values().find("output_size")->second);
  const std::size_t spatial = number ? std::max<std::size_t>(x.size(), 2) - 2 : a.list("output_size").size();
  if (spatial < 1 || spatial > 3 || x.size() < spatial) {
    throw Error("{}: x has shape {} and output_size {}; expected one to three dimensions behind [N, C]", op,
                to_string(x), number ? "one number" : fmt::format("{} numbers", spatial));
  }
  AdaptiveWindows w{per_axis(op, a, "output_size", spatial, 1), {{0}}, 1, 1};
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t in = x[x.size() - spatial + d], out = w.out[d];
    if (in < 1) throw Error("{}: x has shape {}; expected no empty dimension to pool over", op, to_string(x));
    std::int64_t largest = 0;
    std::vector<std::int64_t> covering(static_cast<std::size_t>(in));
    std::vector<std::vector<std::int64_t>> finer;
    const auto begin = [&](std::int64_t o) { return o * in / out; };
    const auto end = [&](std::int64_t o) { return ((o + 1) * in + out - 1) / out; };
    for (std::int64_t o = 0; o < out; ++o) {
      largest = std::max(largest, end(o) - begin(o));
      for (std::int64_t i = begin(o); i < end(o); ++i) ++covering[static_cast<std::size_t>(i)];
    }
    for (const std::vector<std::int64_t>& window : w.seen) {
      for (std::int64_t o = 0; o < out; ++o) {
        std::vector<std::int64_t>& seen = finer.emplace_back();
        for (const std::int64_t position : window) {
          for (std::int64_t i = begin(o); i < end(o); ++i) seen.push_back(position * in + i);
        }
      }
    }
    w.seen = std::move(finer);
    w.largest *= largest;
    w.covering *= *std::ranges::max_element(covering);
  }
  return w;
}

void bind_adaptive_pool(std::string_view op, Dims& d, const Shape& x, const Attributes& a) {
  const AdaptiveWindows w = adaptive_windows(op, x, a);
  const auto spatial = x.end() - std::ssize(w.out);
  d.set("A", Shape(x.begin(), spatial));
  d.set("S", Shape(spatial, x.end()));
  d.set("O", w.out);
  d.set("window", w.largest);
  d.set("covering", w.covering);
}

}  // namespace assay
