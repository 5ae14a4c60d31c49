#include "assay/golden/parallel.h"
#include "assay/operators/engine/axes.h"
#include "assay/operators/engine/operator.h"
#include "assay/operators/engine/sum_exp.h"

namespace assay {
namespace {

// C*: the one extent of `dim`, none for a scalar; A* before it, B* behind.
struct LogSoftmax {
  static constexpr std::string_view name = "log_softmax";
  static constexpr std::string_view math = "y = x - max x - log sum exp(x - max x)";
  static constexpr std::string_view source = "Blanchard, Higham and Higham 2021, eq. 1.4 (shifted)";
  static constexpr std::string_view aliases[] = {"torch.log_softmax", "torch.nn.functional.log_softmax",
                                                 "_log_softmax", "LogSoftmax", "torch.nn.LogSoftmax"};
  static constexpr Attribute attributes[] = {{"dim", "-1", "the dimension whose probabilities sum to 1"}};
  static constexpr Arg args[] = {
      {"x", "A*,C*,B*", Role::input, -8, 8},
      {"grad_y", "A*,C*,B*", Role::grad_output},
      {.name = "y", .shape = "A*,C*,B*", .role = Role::output, .terms = "C"},
      {.name = "grad_x", .shape = "A*,C*,B*", .role = Role::grad_input, .terms = "C"},
  };
  static constexpr std::string_view lanes_along = "A";
  static constexpr bool sums_of_rows = true;
  static constexpr Example examples[] = {
      {"A=4,C=15,B="}, {"A=2,C=5,B=3", "dim=1"}, {"A=,C=6,B=2x2", "dim=-3"}};
  static constexpr Seen seen[] = {{"dim", "-2", "keys before the last dimension"},
                                  {"dim", "1", "classes behind the batch, where PyTorch's losses have them"},
                                  {"dim", "0", "a tensor without a batch"}};

  static void bind(Dims& d, InputShapes inputs, const Attributes& a) {
    bind_axis(d, shape_of_input(inputs, "x"), a.integer("dim"));
  }

  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    if (C == 0) return;
    each_in_parallel(A, grain_of(8 * C * B), [&](std::int64_t a) {
      for (std::int64_t b = 0; b < B; ++b) {
        const auto row = [&](std::int64_t c) { return x(a, c, b); };
        const Probabilities<T, decltype(row)> p(C, row);
        for (std::int64_t c = 0; c < C; ++c) y(a, c, b) = p.log_p(c);
      }
    });
  }

  // grad_x = g - exp(y) sum g
  template <class T>
  static void backward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto y = t["y"], g = t["grad_y"], grad_x = t["grad_x"];
    const std::int64_t A = d.at("A"), C = d.at("C"), B = d.at("B");
    each_in_parallel(A, grain_of(8 * C * B), [&](std::int64_t a) {
      for (std::int64_t b = 0; b < B; ++b) {
        const T inner = sum<T>(C, [&](auto c) { return g(a, c, b); });
        for (std::int64_t c = 0; c < C; ++c) grad_x(a, c, b) = g(a, c, b) - exp(stored(y(a, c, b))) * inner;
      }
    });
  }
};

}  // namespace

namespace ops {
extern constexpr Operator log_softmax = describe<LogSoftmax>();
}

}  // namespace assay
