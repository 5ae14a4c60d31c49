#include <algorithm>
#include <numeric>

#include "assay/golden/error.h"
#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/reshape.h"

namespace assay {

Shape reshaped(const Shape& x, const Shape& wanted, std::string_view op) {
  const std::int64_t size = element_count(x);
  const auto open = std::ranges::count(wanted, -1);
  Shape y = wanted;
  std::ranges::replace(y, -1, 1);
  const bool legal = open <= 1 && std::ranges::all_of(y, [](std::int64_t extent) { return extent >= 0; });
  if (legal && open == 1) {
    const std::int64_t others = element_count(y);
    if (others > 0 && size % others == 0)
      y[static_cast<std::size_t>(std::ranges::find(wanted, -1) - wanted.begin())] = size / others;
  }
  if (!legal || element_count(y) != size || (open == 1 && std::ranges::count(wanted, 0) > 0)) {
    throw Error(
        "{}: shape {} does not hold the {} elements of {}; expected their number, with one -1 at most", op,
        to_string(wanted), size, to_string(x));
  }
  return y;
}

namespace {

struct Reshape : Copy<Reshape> {
  static constexpr std::string_view name = "reshape";
  static constexpr std::string_view math = "the elements of x in C order, under another shape";
  static constexpr std::string_view source = "torch.reshape";
  static constexpr std::string_view aliases[] = {"torch.reshape", "torch.Tensor.view", "view", "Reshape"};
  static constexpr Attribute attributes[] = {
      {"shape", "null", "extents of y; one -1 is what the others leave"}};
  static constexpr Example examples[] = {
      {"X=4x6", "shape=[2,-1,3]"}, {"X=2x5", "shape=[10]"}, {"X=1", "shape=[]"}};
  static constexpr Shares takes_shares = Shares::of_all;

  // Dimension i of x is dimension j of y if as many elements stand before both; the last such i, for those
  // before it have extent 1.
  static Shape dims_in_result(const Shape& x, const Shape& y, const Attributes&) {
    Shape of_y(y.size(), not_in_result), of_x(x.size(), not_in_result);
    std::int64_t before_x = 1;
    for (std::size_t i = 0; i < x.size(); before_x *= x[i++]) {
      std::int64_t before_y = 1;
      for (std::size_t j = 0; j < y.size(); before_y *= y[j++]) {
        if (before_x == before_y && (y[j] != 1 || x[i] == 1)) of_y[j] = static_cast<std::int64_t>(i);
      }
    }
    for (std::size_t j = y.size(); j-- > 0;) {
      if (of_y[j] != not_in_result) of_x[static_cast<std::size_t>(of_y[j])] = static_cast<std::int64_t>(j);
    }
    return of_x;
  }

  static Shape shape(const Shape& x, const Attributes& a) { return reshaped(x, a.integers("shape"), name); }
  static Positions from(const Shape&, const Shape& y, const Attributes&) {
    Positions all(static_cast<std::size_t>(element_count(y)));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    return all;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reshape = describe<Reshape>();
}

}  // namespace assay
