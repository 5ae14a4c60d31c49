#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/recorded.h"

namespace assay {
namespace {

struct Expand : Copy<Expand, true> {
  static constexpr std::string_view name = "expand";
  static constexpr std::string_view math =
      "y = x, repeated along dimensions of extent 1 and new leading ones";
  static constexpr std::string_view source = "torch.Tensor.expand";
  static constexpr std::string_view aliases[] = {"torch.Tensor.expand", "torch.broadcast_to", "broadcast_to",
                                                 "BroadcastTo"};
  static constexpr Attribute attributes[] = {{"shape", "null", "extents of y; -1 is that of x"}};
  static constexpr Example examples[] = {
      {"X=3x1", "shape=[2,3,4]"}, {"X=1x5", "shape=[6,-1]"}, {"X=", "shape=[7]"}};
  static constexpr bool sums_continue = true;
  static constexpr Shares takes_shares = Shares::of_all;

  static void infer(Recorded& call) {
    const Tensor* grad_y = call.input("grad_y");
    const Shape& y = grad_y != nullptr ? grad_y->shape() : call.result.shape();
    call.attributes.set("shape", std::vector<double>(y.begin(), y.end()));
  }
  static Shape dims_in_result(const Shape& x, const Shape& y, const Attributes&) {
    return broadcast_dims(x, y);
  }

  static Shape shape(const Shape& x, const Attributes& a) {
    const Shape wanted = a.integers("shape");
    Shape y = wanted;
    const auto refuse = [&] {
      throw Error("expand: {} cannot become {}; expected x's extents, or any where x has 1 or nothing",
                  to_string(x), to_string(wanted));
    };
    if (y.size() < x.size()) refuse();
    const std::size_t extra = y.size() - x.size();
    for (std::size_t d = 0; d < y.size(); ++d) {
      if (d >= extra && y[d] == -1) y[d] = x[d - extra];
      if (y[d] < 0 || (d >= extra && x[d - extra] != 1 && y[d] != x[d - extra])) refuse();
    }
    return y;
  }
  static Positions from(const Shape& x, const Shape& y, const Attributes&) {
    const Shape stride = strides_of(x);
    const std::size_t extra = y.size() - x.size();
    return positions_of(y, [&](std::size_t d, std::int64_t i) {
      return d < extra || x[d - extra] == 1 ? 0 : i * stride[d - extra];
    });
  }
  static std::int64_t copies(const Shape& x, const Shape& y, const Attributes&) {
    return element_count(y) / element_count(x);
  }
};

}  // namespace

namespace ops {
extern constexpr Operator expand = describe<Expand>();
}

}  // namespace assay
