#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/collective.h"

namespace assay {
namespace {

// Along `dim` the C = R P elements of every rank are cut into R chunks of P; A* before it, B* behind.
struct ReduceScatter {
  static constexpr std::string_view name = "reduce_scatter";
  static constexpr std::string_view math = "y[r] = chunk r of x[0] + .. + x[R - 1], on rank r";
  static constexpr std::string_view source = "Thakur, Rabenseifner and Gropp 2005, sec. 4.4";
  static constexpr std::string_view aliases[] = {"torch.distributed.reduce_scatter_tensor", "ReduceScatter",
                                                 "ops.ReduceScatter", "HcclReduceScatter",
                                                 "ncclReduceScatter"};
  static constexpr Attribute attributes[] = {
      reduce_attribute, order_attribute, {"dim", "0", "the dimension that is cut, of what one rank holds"}};
  static constexpr Arg args[] = {
      {"x", "R,A*,C,B*", Role::input},
      {.name = "y", .shape = "R,A*,P,B*", .role = Role::output, .terms = "chain"},
  };
  static constexpr Example examples[] = {{"R=4,A=,C=12,B="},
                                         {"R=3,A=2,C=6,B=5", "dim=1,order=\"ring\""},
                                         {"R=5,A=3,C=10,B=", "dim=-1,order=\"tree\""}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const Shape own = shape_per_rank(name, x);
    bind_axis(d, own, a.integer("dim"));
    if (d.at("C") % x[0] != 0) {
      throw Error("reduce_scatter: {} elements along dim {} cannot be cut into {} equal chunks", d.at("C"),
                  a.integer("dim"), x[0]);
    }
    d.set("P", d.at("C") / x[0]);
    bind_rank_reduction(d, name, x[0], a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t R = d.at("R"), A = d.at("A"), P = d.at("P"), B = d.at("B");
    const RankReduction reduction(attr, R);
    for (std::int64_t r = 0; r < R; ++r) {
      for (std::int64_t a = 0; a < A; ++a) {
        for (std::int64_t p = 0; p < P; ++p) {
          for (std::int64_t b = 0; b < B; ++b) {
            y(r, a, p, b) =
                reduction.of<T>(r, [&](std::int64_t from) -> const T& { return x(from, a, r * P + p, b); });
          }
        }
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator reduce_scatter = describe<ReduceScatter>();
}

}  // namespace assay
