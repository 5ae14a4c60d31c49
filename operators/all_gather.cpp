#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/collective.h"
#include "assay/operators/engine/order.h"

namespace assay {
namespace {

// Along `dim` the C elements of every rank become G = R C; A* before it, B* behind.
struct AllGather {
  static constexpr std::string_view name = "all_gather";
  static constexpr std::string_view math = "y = x[0], .., x[R - 1] behind each other, on every rank";
  static constexpr std::string_view source = "Thakur, Rabenseifner and Gropp 2005, sec. 4.1";
  static constexpr std::string_view aliases[] = {"torch.distributed.all_gather_into_tensor", "AllGather",
                                                 "ops.AllGather", "HcclAllGather", "ncclAllGather"};
  static constexpr Attribute attributes[] = {
      {"dim", "0", "the dimension that grows, of what one rank holds"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "R,A*,C,B*", .role = Role::input, .domain = everywhere},
      {.name = "y", .shape = "A*,G,B*", .role = Role::output, .exact = Exact::bits},
  };
  static constexpr Example examples[] = {
      {"R=4,A=,C=3,B="}, {"R=3,A=2,C=4,B=5", "dim=1"}, {"R=2,A=3,C=5,B=", "dim=-1"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Shape own = shape_per_rank(name, x);
    bind_axis(d, own, a.integer("dim"));
    d.set("G", element_count({d.at("C"), x[0]}));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t R = d.at("R"), A = d.at("A"), C = d.at("C"), B = d.at("B");
    for (std::int64_t r = 0; r < R; ++r) {
      for (std::int64_t a = 0; a < A; ++a) {
        for (std::int64_t c = 0; c < C; ++c) {
          for (std::int64_t b = 0; b < B; ++b) y(a, r * C + c, b) = x(r, a, c, b);
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator all_gather = describe<AllGather>();
}

}  // namespace assay
