#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/products.h"

namespace assay {
namespace {

struct Linear {
  static constexpr std::string_view name = "linear";
  static constexpr std::string_view math = "y = x w^T + b";
  static constexpr std::string_view source = "torch.nn.functional.linear";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.linear",
                                                 "torch.nn.Linear",
                                                 "npu_linear",
                                                 "Dense",
                                                 "ColumnParallelLinear",
                                                 "RowParallelLinear",
                                                 "NonDynamicallyQuantizableLinear"};
  static constexpr Arg args[] = {
      {"x", "N*,K", Role::input},
      {"w", "M,K", Role::param},
      {.name = "b", .shape = "M", .role = Role::param, .optional = true},
      {"grad_y", "N*,M", Role::grad_output},
      {.name = "y", .shape = "N*,M", .role = Role::output, .terms = "K + bias"},
      {.name = "grad_x", .shape = "N*,K", .role = Role::grad_input, .terms = "M"},
      {.name = "grad_w", .shape = "M,K", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_b", .shape = "M", .role = Role::grad_input, .optional = true, .terms = "N"},
  };
  static constexpr Example examples[] = {{"N=3x5,K=17,M=9"}, {"N=6,K=7,M=5", "", "b"}, {"N=,K=4,M=3"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true, is_only_sums = true;
  static constexpr std::string_view linear_in = "x";
  static constexpr Narrowing narrowing = Narrowing::to_result_fp8;
  static constexpr RecordedAs recorded_as[] = {{"b", "bias"}};
  static constexpr bool fused_by_name = true, makes_shares = true;
  // Logits of a tied embedding: hidden @ embedding.weight.T.
  static constexpr std::string_view functional_inputs[] = {"x", "w", "b"};

  // "bias": 1 with b, 0 without. It is one term of the sum: a kernel may start its accumulator with it.
  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    d.set("bias", find_input(inputs, "b") != nullptr ? 1 : 0);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    const Strided<const T> x = {t["x"].data(), K, 1}, w = {t["w"].data(), K, 1};
    const Strided<T> y = {t["y"].data(), M, 1};
    if (t.wants("y")) products<T>({N, M, K, x, w.transposed(), y, {t.optional("b").data(), 0, 1}});
  }

  // grad_x = grad_y w, grad_w = grad_y^T x, grad_b = sum_n grad_y
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    const Strided<const T> x = {t["x"].data(), K, 1}, w = {t["w"].data(), K, 1},
                           g = {t["grad_y"].data(), M, 1};
    if (t.wants("grad_x")) products<T>({N, K, M, g, w, {t["grad_x"].data(), K, 1}});
    if (t.wants("grad_w")) products<T>({M, K, N, g.transposed(), x, {t["grad_w"].data(), K, 1}});
    const auto grad_b = t.optional("grad_b");
    if (!grad_b) return;
    for (std::int64_t m = 0; m < M; ++m) grad_b(m) = sum<T>(N, [&](auto n) { return g(n, m); });
  }

  // A bias is one more column of w, times 1.
  static void certify(Tensors<float>& t, const Dims& d, const Attributes&, Proofs& proofs) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    const float *x = t["x"].data(), *w = t["w"].data();
    if (const auto b = t.optional("b")) {
      const std::vector<float> longer_x = with_column(x, N, K, [](auto) { return 1.f; });
      const std::vector<float> longer_w = with_column(w, M, K, [&](auto m) { return b(m); });
      certify_matmul(proofs["y"], dense(longer_x.data(), N, K + 1), dense(longer_w.data(), K + 1, M, true),
                     t["y"].data());
    } else {
      certify_matmul(proofs["y"], dense(x, N, K), dense(w, K, M, true), t["y"].data());
    }
    if (!t.has("grad_y")) return;
    const float* g = t["grad_y"].data();
    certify_matmul(proofs["grad_x"], dense(g, N, M), dense(w, M, K), t["grad_x"].data());
    certify_matmul(proofs["grad_w"], dense(g, M, N, true), dense(x, N, K), t["grad_w"].data());
    if (!t.has("grad_b")) return;
    const std::vector<float> ones(static_cast<std::size_t>(N), 1);
    certify_matmul(proofs["grad_b"], dense(ones.data(), 1, N), dense(g, N, M), t["grad_b"].data());
  }

  template <class F>
  static std::vector<float> with_column(const float* matrix, std::int64_t rows, std::int64_t columns,
                                        F last) {
    std::vector<float> longer;
    longer.reserve(static_cast<std::size_t>(rows * (columns + 1)));
    for (std::int64_t i = 0; i < rows; ++i) {
      longer.insert(longer.end(), matrix + i * columns, matrix + (i + 1) * columns);
      longer.push_back(last(i));
    }
    return longer;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator linear = describe<Linear>();
}

}  // namespace assay
