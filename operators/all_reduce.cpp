#include "assay/operators/engine/collective.h"

namespace assay {
namespace {

struct AllReduce {
  static constexpr std::string_view name = "all_reduce";
  static constexpr std::string_view math = "y = x[0] + .. + x[R - 1], on every rank";
  static constexpr std::string_view source = "Thakur, Rabenseifner and Gropp 2005, sec. 4.5";
  static constexpr std::string_view aliases[] = {"torch.distributed.all_reduce", "AllReduce", "ops.AllReduce",
                                                 "HcclAllReduce", "ncclAllReduce"};
  static constexpr Attribute attributes[] = {reduce_attribute, order_attribute};
  static constexpr Arg args[] = {
      {"x", "R,S*", Role::input},
      {.name = "y", .shape = "S*", .role = Role::output, .terms = "chain"},
  };
  static constexpr Example examples[] = {{"R=8,S=33"},
                                         {"R=4,S=2x7", "order=\"ring\",reduce=\"avg\""},
                                         {"R=6,S=11", "order=\"tree\""},
                                         {"R=3,S=4", "reduce=\"prod\",order=\"rank\""},
                                         {"R=4,S=5", "order=\"exact\""},
                                         {"R=2,S=3", "reduce=\"min\""}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    d.set("S", shape_per_rank(name, x));
    bind_rank_reduction(d, name, x[0], a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t R = d.at("R"), S = d.at("S"), chunk = (S + R - 1) / R;
    const RankReduction reduction(a, R);
    for (std::int64_t s = 0; s < S; ++s) {
      y(s) = reduction.of<T>(s / chunk, [&](std::int64_t r) -> const T& { return x(r, s); });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator all_reduce = describe<AllReduce>();
}

}  // namespace assay
