#include <fmt/ranges.h>

#include "assay/golden/error.h"
#include "assay/operators/operator.h"

namespace assay {
namespace {

// C*: the last extents, as many as weight or normalized_shape has; one if there is neither.
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
                                                 "FusedLayerNorm"};
  static constexpr Attribute attributes[] = {
      {"eps", "1e-5", "added to the variance"},
      {"normalized_shape", "null", "the extents normalised over, where weight does not tell"}};
  static constexpr Arg args[] = {
      {"x", "N*,C*", Role::input, -8, 8},
      {.name = "weight", .shape = "C*", .role = Role::param, .low = .5, .high = 2, .optional = true},
      {.name = "bias", .shape = "C*", .role = Role::param, .optional = true},
      {"grad_y", "N*,C*", Role::grad_output},
      {"y", "N*,C*", Role::output},
      {"mean", "N*", Role::output},
      {"rstd", "N*", Role::output},
      {"grad_x", "N*,C*", Role::grad_input},
      {.name = "grad_weight", .shape = "C*", .role = Role::grad_input, .optional = true},
      {.name = "grad_bias", .shape = "C*", .role = Role::grad_input, .optional = true},
  };
  static constexpr Example examples[] = {{"N=6,C=33"},
                                         {"N=2x3,C=16", "eps=1e-6"},
                                         {"N=5,C=2x4", "normalized_shape=[2,4]", "weight,bias"},
                                         {"N=4,C=3x5", "", "bias"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    const Shape& x = shape_of_input(inputs, "x");
    std::size_t rank = 1;
    for (const std::string_view param : {"weight", "bias"}) {
      if (const InputShape* found = find_input(inputs, param)) rank = found->shape.size();
    }
    if (a.has("normalized_shape")) rank = a.list("normalized_shape").size();
    if (rank == 0 || rank > x.size()) {
      throw Error("layer_norm: cannot normalise the last {} dimensions of x, whose shape is {}", rank,
                  to_string(x));
    }
    const auto first = x.end() - static_cast<std::ptrdiff_t>(rank);
    d.set("N", Shape(x.begin(), first));
    d.set("C", Shape(first, x.end()));
    if (!a.has("normalized_shape")) return;
    const std::vector<double> given = a.list("normalized_shape");
    if (std::vector<double>(first, x.end()) != given) {
      throw Error("layer_norm: x has shape {}; normalized_shape is [{}]", to_string(x),
                  fmt::join(given, ", "));
    }
  }
  static std::int64_t terms(std::string_view output, const Dims& d, const Attributes&) {
    return output == "grad_weight" || output == "grad_bias" ? d.at("N") : d.at("C");
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes& a) {
    const std::int64_t N = d.at("N"), C = d.at("C");
    const auto x = t["x"], y = t["y"], mean = t["mean"], rstd = t["rstd"];
    const T eps = constant<T>(a.real("eps"));
    const bool has_w = t.has("weight"), has_b = t.has("bias");
    const auto w = has_w ? t["weight"] : x, b = has_b ? t["bias"] : x;
    for (std::int64_t n = 0; n < N; ++n) {
      mean(n) = sum<T>(C, [&](auto c) { return x(n, c); }) / number<T>(C);
      const T variance = sum<T>(C,
                                [&](auto c) {
                                  const T deviation = x(n, c) - mean(n);
                                  return deviation * deviation;
                                }) /
                         number<T>(C);
      rstd(n) = T(1) / sqrt(variance + eps);
      for (std::int64_t c = 0; c < C; ++c) {
        y(n, c) = (x(n, c) - mean(n)) * rstd(n);
        if (has_w) y(n, c) *= w(c);
        if (has_b) y(n, c) += b(c);
      }
    }
  }

  // With h = (x - mean) rstd and v = w g: grad_x = rstd (v - mean(v) - h mean(v h)), grad_w = sum_n g h,
  // grad_b = sum_n g.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const std::int64_t N = d.at("N"), C = d.at("C");
    const auto x = t["x"], g = t["grad_y"], grad_x = t["grad_x"], mean = t["mean"], rstd = t["rstd"];
    const bool has_w = t.has("weight");
    const auto w = has_w ? t["weight"] : x;
    const auto h = [&](auto n, auto c) { return (x(n, c) - mean(n)) * rstd(n); };
    const auto v = [&](auto n, auto c) { return has_w ? w(c) * g(n, c) : g(n, c); };
    for (std::int64_t n = 0; n < N; ++n) {
      const T mean_v = sum<T>(C, [&](auto c) { return v(n, c); }) / number<T>(C);
      const T mean_vh = sum<T>(C, [&](auto c) { return v(n, c) * h(n, c); }) / number<T>(C);
      for (std::int64_t c = 0; c < C; ++c) grad_x(n, c) = rstd(n) * (v(n, c) - mean_v - h(n, c) * mean_vh);
    }
    if (has_w) {
      const auto grad_w = t["grad_weight"];
      for (std::int64_t c = 0; c < C; ++c) grad_w(c) = sum<T>(N, [&](auto n) { return g(n, c) * h(n, c); });
    }
    if (t.has("grad_bias")) {
      const auto grad_b = t["grad_bias"];
      for (std::int64_t c = 0; c < C; ++c) grad_b(c) = sum<T>(N, [&](auto n) { return g(n, c); });
    }
  }
};

}  // namespace

namespace ops {
extern constexpr Operator layer_norm = describe<LayerNorm>();
}

}  // namespace assay
