#include <algorithm>
#include <cmath>
#include <numeric>

#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"

namespace assay {
namespace {

// NumPy's rule: negative positions count from the end, what lies outside is cut off.
struct Slice : Copy<Slice> {
  static constexpr std::string_view name = "slice";
  static constexpr std::string_view math = "y = x[start:end:step] along each of dims";
  static constexpr std::string_view source = "ONNX Slice; NumPy basic slicing";
  static constexpr std::string_view aliases[] = {"Slice", "StridedSlice", "strided_slice"};
  static constexpr Attribute attributes[] = {
      {"starts", "null", "first index, per entry of dims"},
      {"ends", "null",
       "the index before which to stop; null: none, to the last in the direction of the step"},
      {"dims", "null", "the dimensions that are cut; null: the leading ones"},
      {"steps", "null", "distance of the indices, not 0; null: 1"}};
  static constexpr Example examples[] = {{"X=7x5", "starts=[1],ends=[6],steps=[2]"},
                                         {"X=4x9", "starts=[-1,1],ends=[-4,100],dims=[1,0],steps=[-2,1]"},
                                         {"X=6", "starts=[10],steps=[-1]"},
                                         {"X=3x4", "starts=[2],ends=[1]"}};
  static constexpr Shares takes_shares = Shares::of_all;

  struct Cut {
    std::int64_t start = 0, step = 1, count = 0;
  };

  // The positions of ends are often the largest integers there are: all beyond x mean the same.
  static std::vector<std::int64_t> bounded(const Attributes& a, std::string_view attribute) {
    std::vector<std::int64_t> positions;
    for (const double v : a.list(attribute)) {
      const double inside = std::clamp(v, -0x1p53, 0x1p53);
      if (inside != std::floor(inside)) throw Error("slice: {} holds {}; expected integers", attribute, v);
      positions.push_back(static_cast<std::int64_t>(inside));
    }
    return positions;
  }

  static std::vector<std::int64_t> cut_dims(const Attributes& a) {
    if (a.has("dims")) return a.integers("dims");
    std::vector<std::int64_t> leading(a.list("starts").size());
    std::iota(leading.begin(), leading.end(), std::int64_t{0});
    return leading;
  }

  static Shape dims_in_result(const Shape& x, const Shape&, const Attributes& a) {
    Shape dims(x.size());
    std::iota(dims.begin(), dims.end(), std::int64_t{0});
    for (const std::int64_t dim : cut_dims(a)) dims[axis(dim, x.size())] = not_in_result;
    return dims;
  }

  static std::vector<Cut> cuts(const Shape& x, const Attributes& a) {
    std::vector<Cut> all;
    for (const std::int64_t extent : x) all.push_back({.count = extent});
    const std::vector<std::int64_t> starts = bounded(a, "starts");
    const auto fits = [&](std::string_view attribute, std::size_t size) {
      if (size != starts.size())
        throw Error("slice: {} has {} entries, starts {}; expected as many", attribute, size, starts.size());
    };
    const std::vector<std::int64_t> dims = cut_dims(a);
    std::vector<std::int64_t> steps(starts.size(), 1), ends;
    if (a.has("steps")) steps = a.integers("steps");
    if (a.has("ends")) ends = bounded(a, "ends");
    fits("dims", dims.size());
    fits("steps", steps.size());
    if (a.has("ends")) fits("ends", ends.size());
    if (!dims.empty()) axes(dims, x.size());  // none twice
    if (x.empty() && !dims.empty()) throw Error("slice: a scalar has nothing to cut");
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const std::size_t d = axis(dims[i], x.size());
      const std::int64_t extent = x[d], step = steps[i];
      if (step == 0) throw Error("slice: the step of dim {} is 0", dims[i]);
      // Downwards, the position -1 is before the first.
      const std::int64_t least = step > 0 ? 0 : -1, most = step > 0 ? extent : extent - 1;
      const auto inside = [&](std::int64_t p) { return std::clamp(p < 0 ? p + extent : p, least, most); };
      const std::int64_t start = inside(starts[i]);
      const std::int64_t end = a.has("ends") ? inside(ends[i]) : step > 0 ? extent : -1;
      const std::int64_t length = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
      all[d] = {start, step, length > 0 ? (length - 1) / stride + 1 : 0};
    }
    return all;
  }

  static Shape shape(const Shape& x, const Attributes& a) {
    Shape y;
    for (const Cut& cut : cuts(x, a)) y.push_back(cut.count);
    return y;
  }
  static Positions from(const Shape& x, const Shape& y, const Attributes& a) {
    const std::vector<Cut> cut = cuts(x, a);
    const Shape stride = strides_of(x);
    return positions_of(
        y, [&](std::size_t d, std::int64_t i) { return (cut[d].start + i * cut[d].step) * stride[d]; });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator slice = describe<Slice>();
}

}  // namespace assay
