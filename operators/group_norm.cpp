#include "assay/operators/engine/norm.h"

namespace assay {
namespace {

// C channels in G groups of neighbours, D* behind them (pixels, say); "group": the elements of one group,
// "column": those of one channel over the batch.
struct GroupNorm {
  static constexpr std::string_view name = "group_norm";
  static constexpr std::string_view math =
      "y = (x - mean) w / sqrt(var + eps) + b, over each group of channels";
  static constexpr std::string_view source =
      "arXiv:1803.08494 eq. 1 to 4; biased variance as in torch.nn.GroupNorm";
  static constexpr std::string_view aliases[] = {"torch.nn.functional.group_norm", "torch.nn.GroupNorm",
                                                 "GroupNorm", "GroupNormalization"};
  static constexpr Attribute attributes[] = {{"num_groups", "1", "G: groups of equally many channels"},
                                             {"eps", "1e-5", "added to the variance"}};
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N,C,D*", .role = Role::input, .low = -8, .high = 8, .domain = norm_domain},
      {.name = "weight", .shape = "C", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {"grad_y", "N,C,D*", Role::grad_output},
      {.name = "y", .shape = "N,C,D*", .role = Role::output, .terms = "group"},
      {.name = "mean", .shape = "N,G", .role = Role::output, .terms = "group"},
      {.name = "rstd", .shape = "N,G", .role = Role::output, .terms = "group"},
      {.name = "grad_x", .shape = "N,C,D*", .role = Role::grad_input, .terms = "group"},
      {.name = "grad_weight", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "column"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "column"},
  };
  static constexpr Example examples[] = {{"N=2,C=6,D=5", "num_groups=2"},
                                         {"N=3,C=4,D=2x3", "num_groups=4,eps=1e-6"},
                                         {"N=5,C=8,D=", "num_groups=2", "bias"},
                                         {"N=2,C=3,D=4", "", "weight,bias"}};
  static constexpr Seen seen[] = {{"eps", "1e-5", "torch.nn.GroupNorm"},
                                  {"eps", "1e-6", "Stable Diffusion's autoencoder"},
                                  {"eps", "1e-3", "Keras"}};
  static constexpr Solved solved[] = {any_epsilon};
  static constexpr std::string_view gain = "weight";

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    const std::int64_t G = a.integer("num_groups");
    if (G < 1 || x[1] % G != 0) {
      throw Error("group_norm: num_groups is {}; expected a divisor of the {} channels", G, x[1]);
    }
    d.set("D", Shape(x.begin() + 2, x.end()));
    d.set("G", G);
    d.set("group", {x[1] / G, d.at("D")});
    d.set("column", {x[0], d.at("D")});
  }

  // Element i of group k of sample n, as x(n, c, j).
  template <class T>
  struct Group {
    View<T> x;
    std::int64_t n, first, D;
    std::int64_t channel(std::int64_t i) const { return first + i / D; }
    T& operator()(std::int64_t i) const { return x(n, channel(i), i % D); }
  };

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const auto w = t.optional("weight"), b = t.optional("bias"), mean = t["mean"], rstd = t["rstd"];
    const std::int64_t N = d.at("N"), G = d.at("G"), D = d.at("D"), per_group = d.at("C") / G;
    const T eps = constant<T>(a.real("eps"));
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t k = 0; k < G; ++k) {
        const Group<T> x{t["x"], n, k * per_group, D}, y{t["y"], n, k * per_group, D};
        const Moments<T> m = moments(per_group * D, x, eps);
        mean(n, k) = m.mean;
        rstd(n, k) = m.rstd;
        for (std::int64_t i = 0; i < per_group * D; ++i) {
          const std::int64_t c = x.channel(i);
          // PyTorch's kernels compute one scale and one shift per channel, and may cancel more.
          y(i) = without_cancellation<T>(
              [&] {
                const T normal = stored((x(i) - m.mean) * m.rstd), scaled = w ? normal * w(c) : normal;
                return b ? scaled + b(c) : scaled;
              },
              [&] {
                const T scale = w ? m.rstd * w(c) : m.rstd, shift = -(m.mean * scale);
                return x(i) * scale + (b ? b(c) + shift : shift);
              });
        }
      }
    }
  }

  // With h = (x - mean) rstd: grad_w = sum g h, grad_b = sum g, over samples and D.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto w = t.optional("weight"), mean = t["mean"], rstd = t["rstd"], x = t["x"], g = t["grad_y"];
    const std::int64_t N = d.at("N"), C = d.at("C"), G = d.at("G"), D = d.at("D"), per_group = C / G;
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t k = 0; k < G; ++k) {
        const Group<T> in{x, n, k * per_group, D}, out{g, n, k * per_group, D};
        normalised_gradient<T>(
            per_group * D, [&](auto i) { return w ? stored(w(in.channel(i)) * out(i)) : out(i); },
            [&](auto i) { return stored((in(i)-stored(mean(n, k))) * stored(rstd(n, k))); },
            stored(rstd(n, k)), Group<T>{t["grad_x"], n, k * per_group, D});
      }
    }
    const auto h = [&](auto n, auto c, auto i) {
      return stored((x(n, c, i) - stored(mean(n, c / per_group))) * stored(rstd(n, c / per_group)));
    };
    if (const auto grad_w = t.optional("grad_weight")) {
      for (std::int64_t c = 0; c < C; ++c) {
        grad_w(c) = sum<T>(N * D, [&](auto i) { return g(i / D, c, i % D) * h(i / D, c, i % D); });
      }
    }
    if (const auto grad_b = t.optional("grad_bias")) {
      for (std::int64_t c = 0; c < C; ++c) {
        grad_b(c) = sum<T>(N * D, [&](auto i) { return g(i / D, c, i % D); });
      }
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator group_norm = describe<GroupNorm>();
}

}  // namespace assay
