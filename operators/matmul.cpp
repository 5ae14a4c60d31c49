#include "assay/golden/error.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/certify.h"
#include "assay/operators/engine/copy.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// torch.matmul: A*, B* batches that broadcast to Y*; M* and N* are no axis where a or b is a vector. A factor
// that is broadcast collects the gradients of all its copies.
struct MatMul {
  static constexpr std::string_view name = "matmul";
  static constexpr std::string_view math = "y = a b";
  static constexpr std::string_view source = "Higham 2002, sec. 3.5";
  static constexpr std::string_view aliases[] = {
      "torch.matmul", "torch.mm", "torch.bmm", "mm", "bmm", "npu_bmm", "ops.matmul", "MatMul", "BatchMatMul"};
  static constexpr Attribute attributes[] = {{"transpose_a", "false", "a is stored [K, M]"},
                                             {"transpose_b", "false", "b is stored [N, K]"}};
  static constexpr Arg args[] = {
      {"a", "A*,M*,K", Role::input},
      {"b", "B*,K,N*", Role::input},
      {"grad_y", "Y*,M*,N*", Role::grad_output},
      {.name = "y", .shape = "Y*,M*,N*", .role = Role::output, .terms = "K"},
      {.name = "grad_a", .shape = "A*,M*,K", .role = Role::grad_input, .terms = "N copies_A"},
      {.name = "grad_b", .shape = "B*,K,N*", .role = Role::grad_input, .terms = "M copies_B"},
  };
  static constexpr Example examples[] = {
      {"A=,M=3,K=5,B=,N=4"},
      {"A=,M=6,K=31,B=,N=10", "transpose_a=true,transpose_b=true"},
      {"A=2x1,M=3,K=4,B=3,N=2"},
      {"A=,M=,K=7,B=2,N=3"},
  };
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr bool sums_continue = true, is_only_sums = true;
  static constexpr std::string_view linear_in = "a";
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr std::string_view with_parameter = "linear";  // as PyTorch and Megatron-LM store weights

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (arg.name.ends_with("a") && a.flag("transpose_a")) return "A*,K,M*";
    if (arg.name.ends_with("b") && a.flag("transpose_b")) return "B*,N*,K";
    return arg.shape;
  }

  // Batch, rows and columns of one factor; a vector has only the axis K.
  static void bind(Dims& d, InputShapes inputs, const Attributes& attr) {
    const Shape& a = shape_of_input(inputs, "a");
    const Shape& b = shape_of_input(inputs, "b");
    const auto split = [&](const Shape& x, bool k_last, std::string_view batch, std::string_view other) {
      const std::size_t n = x.size();
      d.set(batch, n < 2 ? Shape() : Shape(x.begin(), x.end() - 2));
      d.set(other, n < 2 ? Shape() : Shape{k_last ? x[n - 2] : x[n - 1]});
      return k_last || n < 2 ? x[n - 1] : x[n - 2];
    };
    d.set("K", split(a, !attr.flag("transpose_a"), "A", "M"));
    split(b, attr.flag("transpose_b"), "B", "N");
    d.set("Y", broadcast(d.extents("A"), d.extents("B")));
    const std::int64_t A = d.at("A"), B = d.at("B"), Y = d.at("Y");
    d.set("copies_A", A == 0 ? 0 : Y / A);
    d.set("copies_B", B == 0 ? 0 : Y / B);
  }

  // x(batch, i, j), or x(batch, j, i) where it is stored transposed.
  template <class T>
  struct Matrix {
    T* x;
    std::int64_t rows, columns;
    bool transposed;
    T& operator()(std::int64_t batch, std::int64_t i, std::int64_t j) const {
      return x[batch * rows * columns + (transposed ? j * rows + i : i * columns + j)];
    }
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const std::int64_t M = d.at("M"), N = d.at("N"), K = d.at("K");
    const Matrix<T> a{t["a"].data(), M, K, attr.flag("transpose_a")};
    const Matrix<T> b{t["b"].data(), K, N, attr.flag("transpose_b")};
    const Matrix<T> y{t["y"].data(), M, N, false};
    const auto of_a = broadcast_positions(d.extents("A"), d.extents("Y"));
    const auto of_b = broadcast_positions(d.extents("B"), d.extents("Y"));
    for (std::size_t p = 0; p < of_a.size(); ++p) {
      for (std::int64_t m = 0; m < M; ++m) {
        for (std::int64_t n = 0; n < N; ++n) {
          y(static_cast<std::int64_t>(p), m, n) =
              sum<T>(K, [&](auto k) { return a(of_a[p], m, k) * b(of_b[p], k, n); });
        }
      }
    }
  }

  // grad_a = grad_y b^T, grad_b = a^T grad_y
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const std::int64_t A = d.at("A"), B = d.at("B"), M = d.at("M"), N = d.at("N"), K = d.at("K");
    const Matrix<T> a{t["a"].data(), M, K, attr.flag("transpose_a")};
    const Matrix<T> b{t["b"].data(), K, N, attr.flag("transpose_b")};
    const Matrix<T> grad_a{t["grad_a"].data(), M, K, a.transposed};
    const Matrix<T> grad_b{t["grad_b"].data(), K, N, b.transposed};
    const Matrix<T> g{t["grad_y"].data(), M, N, false};
    const auto of_a = broadcast_positions(d.extents("A"), d.extents("Y"));
    const auto of_b = broadcast_positions(d.extents("B"), d.extents("Y"));
    const Copies copies_of_a(of_a, A), copies_of_b(of_b, B);
    const auto size = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
    const auto at = [](const auto& list, std::int64_t i) { return list[static_cast<std::size_t>(i)]; };

    for (std::int64_t p = 0; p < A; ++p) {
      const auto batches = copies_of_a.of(p);
      for (std::int64_t m = 0; m < M; ++m) {
        for (std::int64_t k = 0; k < K; ++k) {
          grad_a(p, m, k) = sum<T>(size(batches) * N, [&](auto i) {
            const std::int64_t batch = at(batches, i / N), n = i % N;
            return g(batch, m, n) * b(at(of_b, batch), k, n);
          });
        }
      }
    }
    for (std::int64_t p = 0; p < B; ++p) {
      const auto batches = copies_of_b.of(p);
      for (std::int64_t k = 0; k < K; ++k) {
        for (std::int64_t n = 0; n < N; ++n) {
          grad_b(p, k, n) = sum<T>(size(batches) * M, [&](auto i) {
            const std::int64_t batch = at(batches, i / M), m = i % M;
            return a(at(of_a, batch), m, k) * g(batch, m, n);
          });
        }
      }
    }
  }

  // The gradient of a factor that is broadcast is left: it is the sum of several products.
  static void certify(Tensors<float>& t, const Dims& d, const Attributes& attr, Proofs& proofs) {
    const std::int64_t M = d.at("M"), N = d.at("N"), K = d.at("K");
    const bool ta = attr.flag("transpose_a"), tb = attr.flag("transpose_b");
    const float *a = t["a"].data(), *b = t["b"].data();
    const auto of_a = broadcast_positions(d.extents("A"), d.extents("Y"));
    const auto of_b = broadcast_positions(d.extents("B"), d.extents("Y"));
    const auto batches = static_cast<std::int64_t>(of_a.size());
    const auto a_of = [&](std::size_t p, bool transposed) {
      const float* at = a + of_a[p] * M * K;
      return transposed ? dense(at, K, M, !ta) : dense(at, M, K, ta);
    };
    const auto b_of = [&](std::size_t p, bool transposed) {
      const float* at = b + of_b[p] * K * N;
      return transposed ? dense(at, N, K, !tb) : dense(at, K, N, tb);
    };
    Proof& of_y = proofs["y"];
    for (std::int64_t p = 0; p < batches; ++p) {
      const auto batch = static_cast<std::size_t>(p);
      certify_matmul(of_y, a_of(batch, false), b_of(batch, false), t["y"].data() + p * M * N);
    }
    if (!t.has("grad_y")) return;
    const auto g_of = [&](std::int64_t p, bool transposed) {
      const float* at = t["grad_y"].data() + p * M * N;
      return transposed ? dense(at, N, M, true) : dense(at, M, N);
    };
    if (d.at("A") == batches) {
      Proof& proof = proofs["grad_a"];
      for (std::int64_t p = 0; p < batches; ++p) {
        const auto batch = static_cast<std::size_t>(p);
        float* to = t["grad_a"].data() + p * M * K;
        if (ta)
          certify_matmul(proof, b_of(batch, false), g_of(p, true), to);
        else
          certify_matmul(proof, g_of(p, false), b_of(batch, true), to);
      }
    }
    if (d.at("B") == batches) {
      Proof& proof = proofs["grad_b"];
      for (std::int64_t p = 0; p < batches; ++p) {
        const auto batch = static_cast<std::size_t>(p);
        float* to = t["grad_b"].data() + p * K * N;
        if (tb)
          certify_matmul(proof, g_of(p, true), a_of(batch, false), to);
        else
          certify_matmul(proof, a_of(batch, true), g_of(p, false), to);
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator matmul = describe<MatMul>();
}

}  // namespace assay
