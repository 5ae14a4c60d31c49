#include "assay/golden/error.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/products.h"

namespace assay {
namespace {

// Logits of a tied embedding w that is narrower than what it meets: K = A + B channels, the last B of which
// have weights of their own, v.
struct ExtendedLinear {
  static constexpr std::string_view name = "extended_linear";
  static constexpr std::string_view math = "y = x_1 w^T + x_2 v + b of x = (x_1, x_2)";
  static constexpr std::string_view source =
      "google-research/mobilebert run_pretraining.py, extra_output_weights; Hugging Face transformers "
      "modeling_mobilebert.py";
  static constexpr Arg args[] = {
      {"x", "N*,K", Role::input},
      {"w", "M,A", Role::param},
      {"v", "B,M", Role::param},
      {.name = "b", .shape = "M", .role = Role::param, .optional = true},
      {"grad_y", "N*,M", Role::grad_output},
      {.name = "y", .shape = "N*,M", .role = Role::output, .terms = "K + bias"},
      {.name = "grad_x", .shape = "N*,K", .role = Role::grad_input, .terms = "M"},
      {.name = "grad_w", .shape = "M,A", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_v", .shape = "B,M", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_b", .shape = "M", .role = Role::grad_input, .optional = true, .terms = "N"},
  };
  static constexpr Example examples[] = {{"N=2x3,K=7,M=9,A=4,B=3"}, {"N=6,K=5,M=4,A=2,B=3", "", "b"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view linear_in = "x";
  static constexpr std::string_view functional_inputs[] = {"x", "w", "v", "b"};

  static bool goes_with(InputShapes before, const InputShape& next) {
    const InputShape *x = find_input(before, "x"), *w = find_input(before, "w");
    return next.name != "v" || x == nullptr || w == nullptr || fit(x->shape, w->shape, next.shape);
  }

  static void bind(Dims& d, InputShapes inputs, const Attributes&) {
    const Shape &x = shape_of_input(inputs, "x"), &w = shape_of_input(inputs, "w"),
                &v = shape_of_input(inputs, "v");
    if (!fit(x, w, v)) {
      throw Error(
          "extended_linear: x has shape {}, w {}, v {}; expected as many channels of x as w and v have "
          "together",
          to_string(x), to_string(w), to_string(v));
    }
    d.set("bias", find_input(inputs, "b") != nullptr ? 1 : 0);
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    if (!t.wants("y")) return;
    const std::vector<T> matrix = joined(t, d);
    const auto b = t.optional("b"), y = t["y"];
    products<T>({N, M, K, {t["x"].data(), K, 1}, {matrix.data(), M, 1}, {y.data(), M, 1}});
    if (!b) return;
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t m = 0; m < M; ++m) y(n, m) = stored(y(n, m)) + b(m);
    }
  }

  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K"), A = d.at("A"), B = d.at("B");
    const T* x = t["x"].data();
    const Strided<const T> g = {t["grad_y"].data(), M, 1};
    if (t.wants("grad_x")) {
      const std::vector<T> matrix = joined(t, d);
      const Strided<const T> whole = {matrix.data(), M, 1};
      products<T>({N, K, M, g, whole.transposed(), {t["grad_x"].data(), K, 1}});
    }
    const Strided<const T> first = {x, K, 1}, last = {x + A, K, 1};
    if (t.wants("grad_w")) products<T>({M, A, N, g.transposed(), first, {t["grad_w"].data(), A, 1}});
    if (t.wants("grad_v")) products<T>({B, M, N, last.transposed(), g, {t["grad_v"].data(), M, 1}});
    const auto grad_b = t.optional("grad_b");
    if (!grad_b) return;
    for (std::int64_t m = 0; m < M; ++m) grad_b(m) = sum<T>(N, [&](auto n) { return g(n, m); });
  }

 private:
  static bool fit(const Shape& x, const Shape& w, const Shape& v) {
    return !x.empty() && w.size() == 2 && v.size() == 2 && x.back() == w[1] + v[0];
  }

  // [K, M]: w^T above v.
  template <class T>
  static std::vector<T> joined(Tensors<T>& t, const Dims& d) {
    const std::int64_t M = d.at("M"), A = d.at("A"), B = d.at("B");
    const auto w = t["w"], v = t["v"];
    std::vector<T> matrix;
    matrix.reserve(static_cast<std::size_t>((A + B) * M));
    for (std::int64_t k = 0; k < A + B; ++k) {
      for (std::int64_t m = 0; m < M; ++m) matrix.push_back(k < A ? w(m, k) : v(k - A, m));
    }
    return matrix;
  }
};

}  // namespace

namespace ops {
extern constexpr Operator extended_linear = describe<ExtendedLinear>();
}

}  // namespace assay
