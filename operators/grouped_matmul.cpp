#include "assay/operators/grouped_matmul.h"

namespace assay {
namespace {

struct GroupedMatMul : GroupedMatMulBase {
  static constexpr std::string_view name = "grouped_matmul";
  static constexpr std::string_view math =
      "y_t = x_t w_g for the rows t of group g: group_sizes[0], then group_sizes[1], ..";
  static constexpr std::string_view source = "MegaBlocks arXiv:2211.15841 sec. 2.3";
  static constexpr std::string_view aliases[] = {"npu_grouped_matmul", "GroupedMatmul", "gmm",
                                                 "grouped_gemm",       "GroupedMLP",    "TEGroupedMLP"};
  static constexpr Attribute attributes[] = {transpose_weight};
  static constexpr Arg args[] = {
      {"x", "T,K", Role::input},
      {"w", "G,K,N", Role::param},
      {.name = "group_sizes", .shape = "G", .role = Role::index, .sums_to = "T"},
      {"grad_y", "T,N", Role::grad_output},
      {.name = "y", .shape = "T,N", .role = Role::output, .terms = "K"},
      {.name = "grad_x", .shape = "T,K", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_w", .shape = "G,K,N", .role = Role::grad_input, .terms = "largest"},
  };
  static constexpr Example examples[] = {{"T=8,K=5,G=3,N=4"}, {"T=6,K=3,G=4,N=2", "transpose_weight=true"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
};

}  // namespace

namespace ops {
extern constexpr Operator grouped_matmul = describe<GroupedMatMul>();
}

}  // namespace assay
