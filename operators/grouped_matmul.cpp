#include "assay/operators/engine/grouped_matmul.h"

#include "assay/operators/engine/certify.h"

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
  static constexpr bool sums_continue = true;
  static constexpr std::string_view linear_in = "x";
  static constexpr Narrowing narrowing = Narrowing::to_result_fp8;
  static constexpr Seen seen[] = {{"transpose_weight", "true", "Megatron-LM, PyTorch: [experts, out, in]"}};
  static constexpr RecordedAs recorded_as[] = {{"w", "weight"},
                                               {"group_sizes", "tokens_per_expert", made_around}};
  static constexpr Rows rows = Rows::routed;
  static constexpr SameAxis same_axis[] = {{"G", "T"}};
  static constexpr bool makes_shares = true;

  static void certify(Tensors<float>& t, const Dims& d, const Attributes& a, Proofs& proofs) {
    const std::int64_t K = d.at("K"), N = d.at("N");
    const bool transposed = a.flag("transpose_weight"), backward = t.has("grad_y");
    Proof &y = proofs["y"], *grad_x = backward ? &proofs["grad_x"] : nullptr,
          *grad_w = backward ? &proofs["grad_w"] : nullptr;
    matmul_of(t, d, a).for_each_group([&](auto rows, auto at_x, auto at_w, auto at_y) {
      const float *x = t["x"].data() + at_x, *w = t["w"].data() + at_w;
      certify_matmul(y, dense(x, rows, K), dense(w, K, N, transposed), t["y"].data() + at_y);
      if (!backward) return;
      const float* g = t["grad_y"].data() + at_y;
      certify_matmul(*grad_x, dense(g, rows, N), dense(w, N, K, !transposed), t["grad_x"].data() + at_x);
      float* to = t["grad_w"].data() + at_w;
      if (transposed)
        certify_matmul(*grad_w, dense(g, N, rows, true), dense(x, rows, K), to);
      else
        certify_matmul(*grad_w, dense(x, K, rows, true), dense(g, rows, N), to);
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator grouped_matmul = describe<GroupedMatMul>();
}

}  // namespace assay
