#include "assay/golden/parallel.h"
#include "assay/operators/engine/norm.h"

namespace assay {
namespace {

// K*: an extent 1 for each of C*.
struct RmsNorm {
  static constexpr std::string_view name = "rms_norm";
  static constexpr std::string_view math = "y = x w / sqrt(mean(x^2) + eps)";
  static constexpr std::string_view source = "arXiv:1910.07467 eq. 4";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.rms_norm",
                                                 "npu_rms_norm",
                                                 "RmsNorm",
                                                 "TENorm",
                                                 "torch.nn.RMSNorm",
                                                 "RMSNormalization"};
  static constexpr Attribute attributes[] = {{"eps", "1e-5", "added to the mean square"}, normalized_shape};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,C*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "weight", .shape = "C*", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {"grad_y", "N*,C*", Role::grad_output},
      {.name = "y", .shape = "N*,C*", .role = Role::output, .terms = "C"},
      {.name = "rstd", .shape = "N*,K*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "N*,C*", .role = Role::grad_input, .terms = "C"},
      {.name = "grad_weight", .shape = "C*", .role = Role::grad_input, .optional = true, .terms = "N"},
  };
  static constexpr std::string_view lanes_along = "N";
  static constexpr bool sums_of_rows = true;
  static constexpr Example examples[] = {{"N=6,C=33"},
                                         {"N=2x3,C=8", "eps=1e-6"},
                                         {"N=4,C=5", "", "weight"},
                                         {"N=3,C=2x5"},
                                         {"N=5,C=2x4", "normalized_shape=[2,4]", "weight"}};
  static constexpr bool sums_continue = true;
  static constexpr Seen seen[] = {{"eps", "1e-5", "TeleChat3, Llama"},
                                  {"eps", "1e-6", "Qwen, DeepSeek-V3, T5"},
                                  {"eps", "1e-8", "the RMSNorm paper's code"},
                                  {"eps", "1e-12", "BERT's epsilon"},
                                  {"eps", "1.1920928955078125e-07", "torch.nn.RMSNorm: 2^-23"},
                                  {"eps", "1e-3", "Keras' epsilon"}};
  static constexpr Solved solved[] = {any_epsilon};
  static constexpr std::string_view gain = "weight";

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_norm(name, d, inputs, a);
    d.set("K", Shape(d.extents("C").size(), 1));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto x = t["x"], w = t.optional("weight"), y = t["y"], rstd = t["rstd"];
    const std::int64_t N = d.at("N"), C = d.at("C");
    const T eps = constant<T>(a.real("eps")), count = number<T>(C);
    each_in_parallel(N, grain_of(2 * C), [&](std::int64_t n) {
      const T mean_square = sum<T>(C, [&](auto c) { return x(n, c) * x(n, c); }) / count;
      rstd(n, 0) = T(1) / sqrt(mean_square + eps);
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = stored(x(n, c) * rstd(n, 0));
        if (w) y(n, c) *= w(c);
      }
    });
  }

  // With h = x rstd and v = w g: grad_x = rstd (v - h mean(v h)), grad_w = sum_n g h.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], w = t.optional("weight"), g = t["grad_y"], rstd = t["rstd"], grad_x = t["grad_x"];
    const auto h = [&](auto n, auto c) { return stored(x(n, c) * stored(rstd(n, 0))); };
    const auto v = [&](auto n, auto c) { return w ? stored(w(c) * g(n, c)) : g(n, c); };
    const std::int64_t N = d.at("N"), C = d.at("C");
    const T count = number<T>(C);
    each_in_parallel(N, grain_of(4 * C), [&](std::int64_t n) {
      const T r = stored(rstd(n, 0));
      const T mean = sum<T>(C, [&](auto c) { return v(n, c) * h(n, c); }) / count;
      for (std::int64_t c = 0; c < C; ++c) grad_x(n, c) = r * (v(n, c) - h(n, c) * mean);
    });
    const auto grad_w = t.optional("grad_weight");
    if (!grad_w) return;
    each_in_parallel(C, grain_of(2 * N), [&](std::int64_t c) {
      grad_w(c) = sum<T>(N, [&](auto n) { return g(n, c) * h(n, c); });
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator rms_norm = describe<RmsNorm>();
}

}  // namespace assay
