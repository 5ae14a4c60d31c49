#include "assay/golden/parallel.h"
#include "assay/operators/engine/norm.h"

namespace assay {
namespace {

struct LayerNorm {
  static constexpr std::string_view name = "layer_norm";
  static constexpr std::string_view math = "y = (x - mean) w / sqrt(var + eps) + b";
  static constexpr std::string_view source =
      "arXiv:1607.06450 eq. 3; biased variance as in torch.nn.LayerNorm";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.layer_norm",
                                                 "torch.nn.LayerNorm",
                                                 "npu_layer_norm_eval",
                                                 "npu_layer_norm",
                                                 "LayerNorm",
                                                 "FusedLayerNorm",
                                                 "LayerNormalization"};
  static constexpr Attribute attributes[] = {{"eps", "1e-5", "added to the variance"}, normalized_shape};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "weight", .shape = "C*", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "bias", .shape = "C*", .role = Role::param, .optional = true},
      {"grad_y", "N*,C*", Role::grad_output},
      {.name = "y", .shape = "N*,C*", .role = Role::output, .terms = "C"},
      {.name = "mean", .shape = "N*", .role = Role::output, .terms = "C"},
      {.name = "rstd", .shape = "N*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "N*,C*", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_weight", .shape = "C*", .role = Role::grad_input, .optional = true, .terms = "N"},
      {.name = "grad_bias", .shape = "C*", .role = Role::grad_input, .optional = true, .terms = "N"},
  };
  static constexpr bool sums_of_rows = true;
  static constexpr bool keeps_statistics = true;  // torch 2.13, aten/src/ATen/native/layer_norm.cpp
  static constexpr std::string_view lanes_along = "N";
  static constexpr Example examples[] = {{"N=6,C=33"},
                                         {"N=2x3,C=16", "eps=1e-6"},
                                         {"N=5,C=2x4", "normalized_shape=[2,4]", "weight,bias"},
                                         {"N=4,C=3x5", "", "bias"}};
  static constexpr Seen seen[] = {{"eps", "1e-5", "torch.nn.LayerNorm, GPT-2"},
                                  {"eps", "1e-6", "ViT"},
                                  {"eps", "1e-8", "the RMSNorm paper's code"},
                                  {"eps", "1e-12", "BERT"},
                                  {"eps", "1e-3", "Keras"}};
  static constexpr Solved solved[] = {any_epsilon};
  static constexpr std::string_view gain = "weight";

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) { bind_norm(name, d, inputs, a); }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t N = d.at("N"), C = d.at("C");
    const auto x = t["x"], y = t["y"], mean = t["mean"], rstd = t["rstd"];
    const T eps = constant<T>(a.real("eps"));
    const auto w = t.optional("weight"), b = t.optional("bias");
    each_in_parallel(N, grain_of(4 * C), [&](std::int64_t n) {
      const Moments<T> m = moments(
          C, [&](auto c) { return x(n, c); }, eps);
      mean(n) = m.mean;
      rstd(n) = m.rstd;
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = stored((x(n, c) - mean(n)) * rstd(n));
        if (w) y(n, c) *= w(c);
        if (b) y(n, c) += b(c);
      }
    });
  }

  // With h = (x - mean) rstd: grad_w = sum_n g h, grad_b = sum_n g, which torch adds up in buffers of their
  // dtype (torch 2.13, aten/src/ATen/native/cpu/layer_norm_kernel.cpp).
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), C = d.at("C");
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"], mean = t["mean"], rstd = t["rstd"];
    const auto w = t.optional("weight");
    const auto h = [&](auto n, auto c) { return stored((x(n, c) - stored(mean(n))) * stored(rstd(n))); };
    const auto v = [&](auto n, auto c) { return w ? stored(w(c) * g(n, c)) : g(n, c); };
    each_in_parallel(N, grain_of(4 * C), [&](std::int64_t n) {
      normalised_gradient<T>(
          C, [&](auto c) { return v(n, c); }, [&](auto c) { return h(n, c); }, stored(rstd(n)),
          [&](auto c) -> T& { return grad_x(n, c); });
    });
    if (const auto grad_w = t.optional("grad_weight")) {
      each_in_parallel(C, grain_of(2 * N), [&](std::int64_t c) {
        grad_w(c) = sum_in_memory<T>(N, [&](auto n) { return g(n, c) * h(n, c); });
      });
    }
    if (const auto grad_b = t.optional("grad_bias")) {
      each_in_parallel(C, grain_of(2 * N), [&](std::int64_t c) {
        grad_b(c) = sum_in_memory<T>(N, [&](auto n) { return g(n, c); });
      });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator layer_norm = describe<LayerNorm>();
}

}  // namespace assay
