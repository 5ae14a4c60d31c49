#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

struct Pad : Copy<Pad, true> {
  static constexpr std::string_view name = "pad";
  static constexpr std::string_view math = "x with elements before and behind it";
  static constexpr std::string_view source = "torch.nn.functional.pad";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.pad", "torch.constant_pad_nd",
                                                 "constant_pad_nd"};
  static constexpr Attribute attributes[] = {
      {"pad", "null",
       "before and behind the last dimension, then those of the one before it, ..; negative: cut off"},
      {"mode", "\"constant\"", "constant, reflect (without the edge), replicate (the edge) or circular"},
      {"value", "0", "of the new elements, mode constant"}};
  static constexpr Example examples[] = {{"X=3x5", "pad=[2,1,1,0],value=-1.5"},
                                         {"X=6", "pad=[-2,3]"},
                                         {"X=4x5", "pad=[3,2],mode=\"reflect\""},
                                         {"X=2x3x4", "pad=[2,1,0,3],mode=\"replicate\""},
                                         {"X=2x5", "pad=[4,3],mode=\"circular\""}};

  enum class Mode { constant, reflect, replicate, circular };
  static Mode mode_of(const Attributes& a) {
    constexpr std::pair<std::string_view, Mode> modes[] = {{"constant", Mode::constant},
                                                           {"reflect", Mode::reflect},
                                                           {"replicate", Mode::replicate},
                                                           {"circular", Mode::circular}};
    for (const auto& [text, mode] : modes) {
      if (text == a.text("mode")) return mode;
    }
    throw Error("pad: mode is \"{}\"; expected constant, reflect, replicate or circular", a.text("mode"));
  }

  // By axis of x: how many elements come before and behind.
  struct Sides {
    std::int64_t before = 0, behind = 0;
  };
  static std::vector<Sides> sides(std::size_t rank, const Attributes& a) {
    const std::vector<std::int64_t> pad = a.integers("pad");
    if (pad.size() % 2 != 0 || pad.size() / 2 > rank) {
      throw Error("pad: pad has {} numbers for {} dimensions; expected two for each that is padded",
                  pad.size(), rank);
    }
    std::vector<Sides> all(rank);
    for (std::size_t i = 0; i < pad.size() / 2; ++i) all[rank - 1 - i] = {pad[2 * i], pad[2 * i + 1]};
    return all;
  }

  static Shape shape(const Shape& x, const Attributes& a) {
    const Mode mode = mode_of(a);
    const std::vector<Sides> side = sides(x.size(), a);
    Shape y = x;
    for (std::size_t d = 0; d < x.size(); ++d) {
      const auto [before, behind] = side[d];
      if (before == 0 && behind == 0) continue;
      y[d] += before + behind;
      // What there is to reflect, to repeat and to go round.
      const std::int64_t most = std::max(before, behind);
      const bool enough =
          mode == Mode::constant ||
          (x[d] > 0 && (mode == Mode::replicate || most <= (mode == Mode::reflect ? x[d] - 1 : x[d])));
      if (y[d] < 0 || !enough) {
        throw Error("pad: {} elements cannot be padded by {} and {} in mode {}", x[d], before, behind,
                    a.text("mode"));
      }
    }
    return y;
  }

  static std::int64_t source_index(Mode mode, std::int64_t i, std::int64_t extent, const Sides& sides) {
    if (mode == Mode::circular) {  // what is cropped is not part of the circle
      const std::int64_t first = std::max<std::int64_t>(-sides.before, 0);
      const std::int64_t left = extent - first - std::max<std::int64_t>(-sides.behind, 0);
      return left <= 0 ? nowhere : first + ((i - first) % left + left) % left;
    }
    if (i >= 0 && i < extent) return i;
    switch (mode) {
      case Mode::constant:
        return nowhere;
      case Mode::reflect:
        return i < 0 ? -i : 2 * (extent - 1) - i;
      case Mode::replicate:
        return i < 0 ? 0 : extent - 1;
      case Mode::circular:
        break;
    }
    return nowhere;
  }
  static Positions from(const Shape& x, const Shape& y, const Attributes& a) {
    const Mode mode = mode_of(a);
    const std::vector<Sides> side = sides(x.size(), a);
    const Shape stride = strides_of(x);
    return positions_of(y, [&](std::size_t d, std::int64_t i) {
      const std::int64_t j = source_index(mode, i - side[d].before, x[d], side[d]);
      return j == nowhere ? nowhere : j * stride[d];
    });
  }

  // The most copies of one index along an axis. Reflected and circular ones have one from either side at
  // most.
  static std::int64_t copies_along(Mode mode, std::int64_t extent, std::int64_t before, std::int64_t behind) {
    before = std::max<std::int64_t>(before, 0);
    behind = std::max<std::int64_t>(behind, 0);
    if (mode == Mode::constant || before + behind == 0) return 1;
    if (mode == Mode::replicate) return extent == 1 ? 1 + before + behind : 1 + std::max(before, behind);
    if (before == 0 || behind == 0) return 2;
    // Reflected: 1 .. before, and extent-1-behind .. extent-2. Circular: extent-before .. extent-1, 0 ..
    // behind-1.
    const bool meet = mode == Mode::reflect
                          ? std::max<std::int64_t>(1, extent - 1 - behind) <= std::min(before, extent - 2)
                          : before + behind > extent;
    return meet ? 3 : 2;
  }
  static std::int64_t copies(const Shape& x, const Shape&, const Attributes& a) {
    const Mode mode = mode_of(a);
    const std::vector<Sides> side = sides(x.size(), a);
    std::int64_t most = 1;
    for (std::size_t d = 0; d < x.size(); ++d)
      most *= copies_along(mode, x[d], side[d].before, side[d].behind);
    return most;
  }

  template <class T>
  static T fill(const Attributes& a) {
    return T(a.real("value"));
  }
};

}  // namespace

namespace ops {
extern constexpr Operator pad = describe<Pad>();
}

}  // namespace assay
