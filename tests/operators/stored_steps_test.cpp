// What is not fused stores every step of a formula in the dtype of its tensors (JAX, optax): the bound covers
// that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "assay/golden/bound.h"
#include "assay/golden/dtype.h"
#include "assay/operators/engine/golden.h"
#include "assay/operators/engine/list.h"

namespace assay::stored_steps_test {
namespace {

// A bfloat16, whatever is done to it.
struct Narrow {
  double x;
  Narrow(double v) : x(round_to(DType::bfloat16, v)) {}  // NOLINT: as in C
  friend Narrow operator+(Narrow a, Narrow b) { return a.x + b.x; }
  friend Narrow operator-(Narrow a, Narrow b) { return a.x - b.x; }
  friend Narrow operator*(Narrow a, Narrow b) { return a.x * b.x; }
  friend Narrow operator/(Narrow a, Narrow b) { return a.x / b.x; }
};
Narrow root(Narrow a) {
  return std::sqrt(a.x);
}
Narrow sigmoid(Narrow a) {
  return 1 / (1 + std::exp(-a.x));
}

Tensor narrow_tensor(const Shape& shape, const std::function<double(double)>& at) {
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = at(static_cast<double>(i));
  return Tensor::from_values(DType::bfloat16, shape, values);
}

// The largest error / allowed of a result that was computed by steps.
double worst(const std::string& op, const std::vector<NamedTensor>& inputs, const Attributes& attributes,
             const std::string& output, const std::function<Narrow(std::int64_t)>& by_steps) {
  const double u = unit_roundoff(DType::bfloat16);
  ErrorModel device = float32_device;
  device.stored_roundoff = u;
  const Tensor golden =
      output_named(compute_golden(find_operator(op), inputs, attributes, Level::fp64), output);
  const Tensor error = output_named(compute_bound(find_operator(op), inputs, attributes, device), output);
  double worst = 0;
  for (std::int64_t i = 0; i < golden.size(); ++i) {
    const double of_i = error.value(i), allowed = of_i + u * (std::abs(golden.value(i)) + of_i);
    worst = std::max(worst, std::abs(by_steps(i).x - golden.value(i)) / allowed);
  }
  return worst;
}

constexpr std::int64_t n = 1 << 12;

TEST(StoredSteps, ASigmoidIsStoredBeforeItIsMultiplied) {
  const Tensor gate = narrow_tensor({n, 1}, [](double i) { return 8 * std::sin(1 + i); }),
               up = narrow_tensor({n, 1}, [](double i) { return 2 * std::cos(3 * i); }),
               g = narrow_tensor({n, 1}, [](double i) { return std::sin(7 * i); });
  const std::vector<NamedTensor> inputs = {{"gate", gate}, {"up", up}, {"grad_y", g}};
  const auto silu = [&](std::int64_t i) { return gate.value(i) * sigmoid(gate.value(i)); };
  const double of_y = worst("swiglu", inputs, {}, "y", [&](auto i) { return silu(i) * up.value(i); });
  EXPECT_LE(of_y, 1);
  EXPECT_GT(of_y, 0.5) << "no more than is needed";
  // As jax.grad has it: the gradient of x s, with that of s, s (1 - s).
  EXPECT_LE(worst("swiglu", inputs, {}, "grad_gate",
                  [&](auto i) {
                    const Narrow x = gate.value(i), s = sigmoid(x),
                                 of_silu = Narrow(g.value(i)) * up.value(i);
                    return of_silu * s + of_silu * x * (s * (Narrow(1) - s));
                  }),
            1);
}

// As Gemma 2 has it: the loss itself is of a cast to float32.
TEST(StoredSteps, ACapOfLogitsIsStoredStepByStep) {
  constexpr std::int64_t rows = 64, classes = n / rows;
  const double cap = 3;
  const Tensor x = narrow_tensor({rows, classes}, [](double i) { return 4 * std::sin(1 + i * i); }),
               target = Tensor::from_indices({rows}, std::vector<std::int64_t>(rows, 5));
  const std::vector<NamedTensor> inputs = {
      {"logits", x},
      {"target", target},
      {"grad_y", Tensor::from_values(DType::float64, {}, std::vector<double>{1})}};
  const auto root_of = [&](std::int64_t i) { return Narrow(std::tanh((Narrow(x.value(i)) / cap).x)); };
  const auto capped = [&](std::int64_t i) { return (root_of(i) * cap).x; };
  const auto gradient = [&](std::int64_t i) {
    const std::int64_t first = i / classes * classes;
    double sum = 0;
    for (std::int64_t v = 0; v < classes; ++v) sum += std::exp(capped(first + v));
    const Narrow g = (std::exp(capped(i)) / sum - (i - first == 5 ? 1 : 0)) / rows, t = root_of(i);
    return Narrow((g * cap).x * (1 - t.x * t.x)) / cap;
  };
  const double of_gradient = worst("cross_entropy", inputs, {{"softcap", cap}}, "grad_logits", gradient);
  EXPECT_LE(of_gradient, 1);
  EXPECT_GT(of_gradient, 0.2) << "no more than is needed";
}

// optax.adamw: constants have the dtype of what they meet.
TEST(StoredSteps, AStepOfAdamIsStoredOperationByOperation) {
  const double lr = 1e-2, decay = 0.1, b1 = 0.9, b2 = 0.999, eps = 1e-8;
  const Tensor p = narrow_tensor({n}, [](double i) { return i == 3 ? std::nan("") : std::sin(1 + i); }),
               g = narrow_tensor({1, n}, [](double i) { return 8 * std::cos(3 * i); }),  // cancels much of m
      m = narrow_tensor({n}, [](double i) { return std::sin(5 * i); }),
               v = narrow_tensor({n}, [](double i) { return 1 + std::sin(7 * i) / 2; });
  const std::vector<NamedTensor> inputs = {{"param", p}, {"grads", g}, {"exp_avg", m}, {"exp_avg_sq", v}};
  const Attributes attributes = {{"lr", lr}, {"weight_decay", decay}, {"step", std::int64_t{1}}};
  const auto first = [&](auto i) { return Narrow(1 - b1) * g.value(i) + Narrow(b1) * m.value(i); };
  const auto second = [&](auto i) {
    return Narrow(1 - b2) * (Narrow(g.value(i)) * g.value(i)) + Narrow(b2) * v.value(i);
  };
  EXPECT_LE(worst("adamw", inputs, attributes, "exp_avg_1", first), 1);
  EXPECT_LE(worst("adamw", inputs, attributes, "exp_avg_sq_1", second), 1);
  EXPECT_LE(worst("adamw", inputs, attributes, "param_1",
                  [&](auto i) {
                    const Narrow up = first(i) / (1 - b1 * b1),
                                 down = root(second(i) / (1 - b2 * b2)) + Narrow(eps);
                    return p.value(i) + Narrow(-lr) * (up / down + Narrow(decay) * p.value(i));
                  }),
            1);
}

}  // namespace
}  // namespace assay::stored_steps_test
