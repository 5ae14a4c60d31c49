#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

struct Tile : Copy<Tile, true> {
  static constexpr std::string_view name = "tile";
  static constexpr std::string_view math = "y(i, j, ..) = x(i mod X_0, j mod X_1, ..)";
  static constexpr std::string_view source = "torch.tile";
  static constexpr std::string_view aliases[] = {"torch.tile", "torch.Tensor.repeat", "repeat", "Tile"};
  static constexpr Attribute attributes[] = {
      {"repeats", "null",
       "how often x is repeated, per dimension; the shorter of it and x's shape gets leading 1s"}};
  static constexpr Example examples[] = {{"X=3x4", "repeats=[2,3]"},
                                         {"X=5", "repeats=[2,1,3]"},
                                         {"X=2x3x2", "repeats=[4]"},
                                         {"X=", "repeats=[3]"}};

  // As many as y has dimensions.
  static Shape with_leading_ones(Shape extents, std::size_t rank) {
    if (extents.size() < rank) extents.insert(extents.begin(), rank - extents.size(), 1);
    return extents;
  }

  static Shape shape(const Shape& x, const Attributes& a) {
    const Shape repeats = a.integers("repeats");
    const std::size_t rank = std::max(x.size(), repeats.size());
    Shape y = with_leading_ones(x, rank);
    const Shape times = with_leading_ones(repeats, rank);
    for (std::size_t d = 0; d < rank; ++d) {
      if (times[d] < 0) throw Error("tile: repeats is {}; expected no negative number", to_string(repeats));
      if (__builtin_mul_overflow(y[d], times[d], &y[d]))
        throw Error("tile: {} times {} is too large", to_string(x), to_string(repeats));
    }
    return y;
  }
  static Positions from(const Shape& x, const Shape& y, const Attributes&) {
    const Shape extents = with_leading_ones(x, y.size()), stride = strides_of(extents);
    return positions_of(y, [&](std::size_t d, std::int64_t i) { return i % extents[d] * stride[d]; });
  }
  static std::int64_t copies(const Shape& x, const Shape& y, const Attributes&) {
    return element_count(y) / element_count(x);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator tile = describe<Tile>();
}

}  // namespace assay
