#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/products.h"

namespace assay {
namespace {

struct Addmm {
  static constexpr std::string_view name = "addmm";
  static constexpr std::string_view math = "y = x w + b";
  static constexpr std::string_view source = "torch.addmm; Hugging Face transformers pytorch_utils.py";
  static constexpr std::string_view aliases[] = {"torch.addmm", "Conv1D"};
  static constexpr Arg args[] = {
      {"x", "N*,K", Role::input},
      {"w", "K,M", Role::param},
      {"b", "M", Role::param},
      {"grad_y", "N*,M", Role::grad_output},
      {.name = "y", .shape = "N*,M", .role = Role::output, .terms = "K + 1"},
      {.name = "grad_x", .shape = "N*,K", .role = Role::grad_input, .terms = "M"},
      {.name = "grad_w", .shape = "K,M", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_b", .shape = "M", .role = Role::grad_input, .terms = "N"},
  };
  static constexpr Example examples[] = {{"N=3x5,K=17,M=9"}, {"N=,K=4,M=3"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view linear_in = "x";
  static constexpr Narrowing narrowing = Narrowing::to_result;
  static constexpr RecordedAs recorded_as[] = {{"w", "weight"}, {"b", "bias"}};

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    const Strided<const T> x = {t["x"].data(), K, 1}, w = {t["w"].data(), M, 1};
    if (t.wants("y")) products<T>({N, M, K, x, w, {t["y"].data(), M, 1}, {t["b"].data(), 0, 1}});
  }

  // grad_x = grad_y w^T, grad_w = x^T grad_y, grad_b = sum_n grad_y
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), M = d.at("M"), K = d.at("K");
    const Strided<const T> x = {t["x"].data(), K, 1}, w = {t["w"].data(), M, 1},
                           g = {t["grad_y"].data(), M, 1};
    if (t.wants("grad_x")) products<T>({N, K, M, g, w.transposed(), {t["grad_x"].data(), K, 1}});
    if (t.wants("grad_w")) products<T>({K, M, N, x.transposed(), g, {t["grad_w"].data(), M, 1}});
    const auto grad_y = t["grad_y"], grad_b = t["grad_b"];
    for (std::int64_t m = 0; m < M; ++m) grad_b(m) = sum<T>(N, [&](auto n) { return grad_y(n, m); });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator addmm = describe<Addmm>();
}

}  // namespace assay
