#include "assay/operators/engine/grouped_matmul.h"

namespace assay {
namespace {

// The gradient of grouped_matmul's weight, added to what other micro-batches gave.
struct GroupedMatMulAdd {
  static constexpr std::string_view name = "grouped_matmul_add";
  static constexpr std::string_view math =
      "y_g = acc_g + sum of x_t^T dy_t over the rows t of group g: group_sizes[0], then group_sizes[1], ..";
  static constexpr std::string_view source =
      "Training Report of TeleChat3-MoE: GroupedMatmulAdd; MindSpeed npu_groupmatmul_add_fp32";
  static constexpr std::string_view aliases[] = {"npu_grouped_matmul_add", "npu_groupmatmul_add_fp32",
                                                 "GroupedMatmulAdd"};
  static constexpr Arg args[] = {
      {"x", "T,K", Role::input},
      {"dy", "T,N", Role::input},
      {"acc", "G,K,N", Role::input},
      {.name = "group_sizes", .shape = "G", .role = Role::index, .sums_to = "T"},
      {.name = "y", .shape = "G,K,N", .role = Role::output, .terms = "largest + 1"},
  };
  static constexpr Example examples[] = {{"T=8,K=5,G=3,N=4"}, {"T=6,K=3,G=4,N=2"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    GroupedMatMulBase::bind(d, inputs, a);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t K = d.at("K"), N = d.at("N");
    const T *x = t["x"].data(), *dy = t["dy"].data(), *acc = t["acc"].data();
    T* y = t["y"].data();
    const GroupedMatMulOf<T> groups{K, N, false, t.slot("group_sizes").indices};
    groups.for_each_group([&](auto rows, auto at_x, auto at_w, auto at_dy) {
      const Strided<const T> of_x = {x + at_x, K, 1};
      products<T>({K, N, rows, of_x.transposed(), {dy + at_dy, N, 1}, {y + at_w, N, 1}, {acc + at_w, N, 1}});
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator grouped_matmul_add = describe<GroupedMatMulAdd>();
}

}  // namespace assay
