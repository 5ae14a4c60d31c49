#include <algorithm>

#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// J: rows of b in blocks; B: K in blocks. Every block of K has its own accumulator, scaled and added to y.
struct Fp8BlockMatMul {
  static constexpr std::string_view name = "fp8_block_matmul";
  static constexpr std::string_view math =
      "y(m,n) = sum over blocks of K: scale_a(m,block) scale_b(block of n,block) sum_{k in block} a(m,k) "
      "b(n,k)";
  static constexpr std::string_view source = "DeepSeek-V3 arXiv:2412.19437 sec. 3.3.2, fig. 7";
  static constexpr std::string_view aliases[] = {"deep_gemm.fp8_gemm_nt", "fp8_gemm_nt", "fp8_gemm",
                                                 "w8a8_block_fp8_matmul"};
  static constexpr Attribute attributes[] = {
      {"block", "128", "extent of a block: a has 1 x block elements per scale, b rows x block"},
      {"rows", "null", "rows of b per scale; null: block, as weights have it; 1: gradients of weights"}};
  // The largest float8_e5m2, and scales with which a product of all four stays finite.
  static constexpr Domain codes = {.low = -57344, .high = 57344}, scales = {.low = -0x1p40, .high = 0x1p40};
  static constexpr Arg args[] = {
      {.name = "a", .shape = "M*,K", .role = Role::input, .low = -8, .high = 8, .domain = codes},
      {.name = "scale_a", .shape = "M*,B", .role = Role::input, .low = .01, .high = .25, .domain = scales},
      {.name = "b", .shape = "N,K", .role = Role::param, .low = -8, .high = 8, .domain = codes},
      {.name = "scale_b", .shape = "J,B", .role = Role::param, .low = .01, .high = .25, .domain = scales},
      {.name = "y", .shape = "M*,N", .role = Role::output, .terms = "inner + B"},
  };
  static constexpr Example examples[] = {{"M=3,K=10,N=6,B=3,J=2", "block=4"},
                                         {"M=2x2,K=9,N=5,B=1,J=1"},
                                         {"M=3,K=7,N=4,B=2,J=4", "block=4,rows=1"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static std::int64_t rows_per_scale(const Attributes& attr) {
    const std::int64_t rows = attr.integer(attr.has("rows") ? "rows" : "block");
    if (rows < 1) throw Error("fp8_block_matmul: rows is {}; expected 1 or more", rows);
    return rows;
  }

  // "inner": the longest sum inside one block.
  static void bind(Dims& d, InputShapes inputs, const Attributes& attr) {
    const Shape &a = shape_of_input(inputs, "a"), &b = shape_of_input(inputs, "b");
    const std::int64_t block = attr.integer("block");
    if (block < 1) throw Error("fp8_block_matmul: block is {}; expected 1 or more", block);
    const auto blocks = [](std::int64_t extent, std::int64_t of) {
      return extent / of + (extent % of != 0 ? 1 : 0);
    };
    d.set("B", blocks(a.back(), block));
    d.set("J", blocks(b[0], rows_per_scale(attr)));
    d.set("inner", std::min(block, a.back()));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const auto a = t["a"], b = t["b"], scale_a = t["scale_a"], scale_b = t["scale_b"], y = t["y"];
    const std::int64_t M = d.at("M"), N = d.at("N"), K = d.at("K"), B = d.at("B"),
                       block = attr.integer("block"), rows = rows_per_scale(attr);
    for (std::int64_t m = 0; m < M; ++m) {
      for (std::int64_t n = 0; n < N; ++n) {
        y(m, n) = sum<T>(B, [&](auto i) {
          const std::int64_t start = i * block;
          const T inside =
              sum<T>(std::min(block, K - start), [&](auto k) { return a(m, start + k) * b(n, start + k); });
          return inside * (scale_a(m, i) * scale_b(n / rows, i));
        });
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator fp8_block_matmul = describe<Fp8BlockMatMul>();
}

}  // namespace assay
