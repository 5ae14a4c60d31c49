#include "assay/operators/operator.h"

namespace assay {
namespace {

struct MatMul {
  static constexpr std::string_view name = "matmul";
  static constexpr std::string_view math = "y = a b";
  static constexpr std::string_view source = "Higham 2002, sec. 3.5";
  static constexpr std::string_view aliases[] = {"torch.matmul", "torch.mm", "mm", "ops.matmul", "MatMul"};
  static constexpr Attribute attributes[] = {{"transpose_a", "false", "a is stored [K, M]"},
                                             {"transpose_b", "false", "b is stored [N, K]"}};
  static constexpr Arg args[] = {
      {"a", "M,K", Role::input},  {"b", "K,N", Role::input},           {"grad_y", "M,N", Role::grad_output},
      {"y", "M,N", Role::output}, {"grad_a", "M,K", Role::grad_input}, {"grad_b", "K,N", Role::grad_input},
  };
  static constexpr ExactFill exact_fill = ExactFill::small_integers;

  static std::string_view shape_of(const Arg& arg, const Attributes& a) {
    if (arg.name.ends_with("a") && a.flag("transpose_a")) return "K,M";
    if (arg.name.ends_with("b") && a.flag("transpose_b")) return "N,K";
    return arg.shape;
  }
  static std::int64_t terms(std::string_view output, const Dims& d, const Attributes&) {
    return output == "grad_a" ? d.at("N") : output == "grad_b" ? d.at("M") : d.at("K");
  }

  // x(i, j), or x(j, i) where it is stored transposed.
  template <class T>
  struct Matrix {
    View<T> x;
    bool transposed;
    T& operator()(std::int64_t i, std::int64_t j) const { return transposed ? x(j, i) : x(i, j); }
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const Matrix<T> a{t["a"], attr.flag("transpose_a")}, b{t["b"], attr.flag("transpose_b")};
    const auto y = t["y"];
    const std::int64_t M = d.at("M"), N = d.at("N"), K = d.at("K");
    for (std::int64_t m = 0; m < M; ++m) {
      for (std::int64_t n = 0; n < N; ++n) {
        y(m, n) = sum<T>(K, [&](auto k) { return a(m, k) * b(k, n); });
      }
    }
  }

  // grad_a = grad_y b^T, grad_b = a^T grad_y
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes& attr) {
    const Matrix<T> a{t["a"], attr.flag("transpose_a")}, b{t["b"], attr.flag("transpose_b")};
    const Matrix<T> grad_a{t["grad_a"], a.transposed}, grad_b{t["grad_b"], b.transposed};
    const auto g = t["grad_y"];
    const std::int64_t M = d.at("M"), N = d.at("N"), K = d.at("K");
    for (std::int64_t k = 0; k < K; ++k) {
      for (std::int64_t m = 0; m < M; ++m) {
        grad_a(m, k) = sum<T>(N, [&](auto n) { return g(m, n) * b(k, n); });
      }
      for (std::int64_t n = 0; n < N; ++n) {
        grad_b(k, n) = sum<T>(M, [&](auto m) { return a(m, k) * g(m, n); });
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator matmul = describe<MatMul>();
}

}  // namespace assay
