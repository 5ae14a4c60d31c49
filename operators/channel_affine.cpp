#include "assay/golden/parallel.h"
#include "assay/operators/engine/operator.h"

namespace assay {
namespace {

// What stands in the place of a norm that computes no statistics, or weighs a branch before it is added.
struct ChannelAffine {
  static constexpr std::string_view name = "channel_affine";
  static constexpr std::string_view math = "y = x w + b, for each channel its own";
  static constexpr std::string_view source =
      "arXiv:2004.02984 sec. 3.3 (NoNorm); arXiv:2103.17239 eq. 4 (LayerScale); arXiv:2105.03404 eq. 1 (Aff)";
  static constexpr Arg args[] = {
      {.name = "x", .shape = "N*,C", .role = Role::input, .low = -8, .high = 8},
      {"weight", "C", Role::param},
      {.name = "bias", .shape = "C", .role = Role::param, .optional = true},
      {"grad_y", "N*,C", Role::grad_output},
      {.name = "y", .shape = "N*,C", .role = Role::output, .terms = "2"},
      {.name = "grad_x", .shape = "N*,C", .role = Role::grad_input, .terms = "1"},
      {.name = "grad_weight", .shape = "C", .role = Role::grad_input, .terms = "N"},
      {.name = "grad_bias", .shape = "C", .role = Role::grad_input, .optional = true, .terms = "N"},
  };
  static constexpr Example examples[] = {{"N=6,C=5"}, {"N=2x3,C=4", "", "bias"}};
  static constexpr ExactFill exact_fill = ExactFill::small_integers;
  static constexpr std::string_view gain = "weight";

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], w = t["weight"], b = t.optional("bias"), y = t["y"];
    const std::int64_t C = d.at("C");
    each_in_parallel(d.at("N"), grain_of(2 * C), [&](std::int64_t n) {
      for (std::int64_t c = 0; c < C; ++c) y(n, c) = b ? stored(x(n, c) * w(c)) + b(c) : x(n, c) * w(c);
    });
  }

  // grad_w = sum_n g x, whose terms are stored: frameworks multiply first, then sum to the shape.
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], w = t["weight"], g = t["grad_y"], grad_x = t["grad_x"], grad_w = t["grad_weight"],
               grad_b = t.optional("grad_bias");
    const std::int64_t N = d.at("N"), C = d.at("C");
    each_in_parallel(N, grain_of(C), [&](std::int64_t n) {
      for (std::int64_t c = 0; c < C; ++c) grad_x(n, c) = g(n, c) * w(c);
    });
    each_in_parallel(C, grain_of(2 * N), [&](std::int64_t c) {
      grad_w(c) = sum<T>(N, [&](auto n) { return stored(g(n, c) * x(n, c)); });
      if (grad_b) grad_b(c) = sum<T>(N, [&](auto n) { return g(n, c); });
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator channel_affine = describe<ChannelAffine>();
}

}  // namespace assay
