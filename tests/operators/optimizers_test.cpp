#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "calls.h"

// Optimizers: what the suite's random inputs do not show, and calls that cannot be right.
namespace assay::optimizers_test {
namespace {

using testing::Each;
using testing::ElementsAre;
constexpr ErrorModel float32_model{0x1p-24, 0x1p-149};

TEST(Adam, WithoutBiasCorrectionTheFirstStepIsShort) {
  const std::vector<NamedTensor> one = {values("param", {1}, {0}), values("grads", {1, 1}, {4})};
  EXPECT_NEAR(output("adam", "param_1", one, "lr=1").value(0), -1, 1e-8);
  // 0.1 g / sqrt(0.001 g^2)
  EXPECT_NEAR(output("adam", "param_1", one, "lr=1,bias_correction=false").value(0), -0.1 / std::sqrt(0.001),
              1e-6);
}

// Where eps stands is all that is left of an element without gradients.
TEST(Adam, EpsPlacementDecidesWhereGradientsAreSmall) {
  const std::vector<NamedTensor> one = {values("param", {1}, {0}), values("grads", {1, 1}, {1e-4})};
  const auto step = [&](const char* attributes) {
    return output("adamw", "param_1", one, attributes).value(0);
  };
  EXPECT_NEAR(step("lr=1,eps=1e-4"), -0.5, 1e-12);
  EXPECT_NEAR(step("lr=1,eps=1e-8,eps_placement=\"inside\""), -1 / std::sqrt(2), 1e-12);
  EXPECT_NEAR(step("lr=1,eps=1e-4,eps_placement=\"hat\""), -1 / (1 + 1 / std::sqrt(0.001)), 1e-12);
}

// A step of bfloat16 stores the decayed parameter; a float32 master is not rounded to its gradient's dtype.
TEST(Adam, AParameterWithMoreDigitsThanItsGradientKeepsThem) {
  ErrorModel narrow = float32_model;
  narrow.stored_roundoff = 0x1p-8;
  const auto bound = [&](double param) {
    const std::vector<NamedTensor> inputs = {values("param", {1}, {param}), values("grads", {1, 1}, {0.25})};
    return output_named(
               compute_bound(find_operator("adamw"), inputs, {{"lr", 1e-4}, {"weight_decay", 0.5}}, narrow),
               "param_1")
        .value(0);
  };
  EXPECT_GT(bound(0.5), 0x1p-10);
  EXPECT_LT(bound(0.5 + 0x1p-20), 0x1p-17);
}

TEST(Adam, WeightDecayGoesThroughTheMomentsOnlyInAdam) {
  const std::vector<NamedTensor> one = {values("param", {1}, {2}), values("grads", {1, 1}, {0})};
  EXPECT_EQ(output("adamw", "exp_avg_1", one, "weight_decay=0.5").value(0), 0);
  EXPECT_DOUBLE_EQ(output("adamw", "param_1", one, "weight_decay=0.5,lr=0.1").value(0), 1.9);
  EXPECT_DOUBLE_EQ(output("adam", "exp_avg_1", one, "weight_decay=0.5").value(0), 0.1);
  EXPECT_NEAR(output("adam", "param_1", one, "weight_decay=0.5,lr=0.1").value(0), 1.9, 1e-8);
}

TEST(Sgd, TheFirstBufferIsTheGradientItself) {
  const auto param = values("param", {1}, {0}), grads = values("grads", {2, 1}, {4, 8});
  const std::vector<NamedTensor> fresh = {param, grads};
  EXPECT_EQ(output("sgd", "momentum_buffer_1", fresh, "momentum=0.5,dampening=0.75").value(0), 4);
  EXPECT_EQ(output("sgd", "momentum_buffer_2", fresh, "momentum=0.5,dampening=0.75").value(0), 4);
  const std::vector<NamedTensor> carried = {param, grads, values("momentum_buffer", {1}, {0})};
  EXPECT_EQ(output("sgd", "momentum_buffer_1", carried, "momentum=0.5,dampening=0.75").value(0), 1);
}

TEST(Sgd, HasNoBufferWithoutMomentum) {
  const std::vector<NamedTensor> inputs = {values("param", {1}, {3}), values("grads", {1, 1}, {2})};
  const auto made = compute_golden(find_operator("sgd"), inputs, attributes_of("lr=1"), Level::fp64);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].tensor.value(0), 1);
}

// torch's kernels without vectors: lr, lr g and the difference are bfloat16, one behind the other.
TEST(Sgd, AKernelThatIsNotFusedRoundsEveryStep) {
  ErrorModel narrow = float32_model;
  narrow.stored_roundoff = 0x1p-8;
  const double param = -0.00026702880859375, g = 0.007110595703125, lr = 0.05;  // as torch 2.13 made of them:
  const std::vector<NamedTensor> inputs = {values("param", {1}, {param}), values("grads", {1, 1}, {g})};
  const double product = round_to(DType::bfloat16, round_to(DType::bfloat16, lr) * g),
               made = round_to(DType::bfloat16, param - product), exact = param - lr * g;
  EXPECT_EQ(made, -0.0006256103515625);
  const double bound =
      output_named(compute_bound(find_operator("sgd"), inputs, {{"lr", lr}}, narrow), "param_1").value(0);
  const double of_result = 0x1p-19;  // half a unit in the last place
  EXPECT_GT(std::abs(made - exact), of_result);
  EXPECT_LE(std::abs(made - exact), bound + of_result);
  EXPECT_LT(bound, 4 * of_result);
}

std::vector<NamedTensor> muon_inputs(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  const CallShape call{{{"M", {rows}}, {"N", {columns}}, {"T", {1}}}, {}, {"momentum_buffer"}};
  return generate_inputs(find_operator("muon"), call, Fill::random, DType::float32, seed);
}

// Both ways around the same iteration runs.
TEST(Muon, ATallMatrixIsTheWideOneTransposed) {
  const std::vector<double> g = {1, 2, 3, -4, 5, 7};
  const std::vector<NamedTensor> wide = {zeros("param", {2, 3}), values("grads", {1, 2, 3}, g)};
  const std::vector<NamedTensor> tall = {zeros("param", {3, 2}),
                                         values("grads", {1, 3, 2}, {g[0], g[3], g[1], g[4], g[2], g[5]})};
  const auto w = output("muon", "orthogonal_1", wide).values(),
             t = output("muon", "orthogonal_1", tall).values();
  EXPECT_THAT(t, ElementsAre(w[0], w[3], w[1], w[4], w[2], w[5]));
}

TEST(Muon, NoGradientMovesNothing) {
  const std::vector<NamedTensor> still = {values("param", {2, 2}, {1, 2, 3, 4}), zeros("grads", {1, 2, 2})};
  EXPECT_THAT(output("muon", "orthogonal_1", still).values(), Each(0));
  EXPECT_THAT(output("muon", "param_1", still).values(), ElementsAre(1, 2, 3, 4));
  const auto bounds = compute_bound(find_operator("muon"), still, {}, float32_model);
  EXPECT_THAT(tensor_of(bounds, "orthogonal_1").values(), Each(testing::Lt(1e-12)));
}

// Five steps multiply what is small by 3.4445^5 = 485, errors too: the bound must hold there, and elsewhere
// be no larger than the problem is.
TEST(Muon, BoundHoldsForSingularGradientsAndStaysUsefulForOthers) {
  const auto check = [](const std::vector<NamedTensor>& inputs, double most) {
    const auto exact = output("muon", "orthogonal_1", inputs).values();
    const auto device = output("muon", "orthogonal_1", inputs, "", Level::report).values();
    const auto bound =
        tensor_of(compute_bound(find_operator("muon"), inputs, {}, float32_model), "orthogonal_1").values();
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_LE(std::abs(device[i] - exact[i]), bound[i]) << i;
      EXPECT_LE(bound[i], most) << i;
    }
  };
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    check(muon_inputs(9, 5, seed), 1e-3);
    check(muon_inputs(32, 64, seed), 1e-2);
    // Two rows apart by less than their rounding.
    auto inputs = muon_inputs(4, 6, seed);
    std::vector<double> g = inputs[1].tensor.values();
    for (std::size_t k = 0; k < 6; ++k) g[6 + k] = g[k] * (1 + 1e-7 * static_cast<double>(k));
    inputs[1].tensor = Tensor::from_values(DType::float32, {1, 4, 6}, g);
    check(inputs, 0.05);
  }
}

// Newton-Schulz of the first gradient, each step's products and results rounded to `kept`.
std::vector<double> iterated(const std::vector<NamedTensor>& inputs, int steps, std::optional<DType> kept) {
  const Shape& shape = inputs[0].tensor.shape();
  const auto m = static_cast<std::size_t>(shape[0]), n = static_cast<std::size_t>(shape[1]);
  const auto rounded = [&](double v) { return kept ? round_to(*kept, v) : v; };
  const auto product = [&](const auto& a, const auto& b, std::size_t inner, std::size_t columns) {
    std::vector<double> y(a.size() / inner * columns);
    for (std::size_t i = 0; i < a.size() / inner; ++i) {
      for (std::size_t k = 0; k < inner; ++k) {
        for (std::size_t j = 0; j < columns; ++j) y[i * columns + j] += a[i * inner + k] * b[k * columns + j];
      }
    }
    std::ranges::transform(y, y.begin(), rounded);
    return y;
  };
  std::vector<double> x = inputs[1].tensor.values();
  double squares = 0;
  for (double& v : x) {
    v *= 0.05 + 0.95 * 0.05;
    squares += v * v;
  }
  for (double& v : x) v = rounded(v / (std::sqrt(squares) + 1e-7));
  for (int k = 0; k < steps; ++k) {
    std::vector<double> turned(x.size());
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) turned[j * m + i] = x[i * n + j];
    }
    const auto gram = product(x, turned, n, m), square = product(gram, gram, m, m);
    std::vector<double> inner(gram.size());
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = rounded(-4.775 * gram[i] + 2.0315 * square[i]);
    const auto change = product(inner, x, m, n);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(3.4445 * x[i] + change[i]);
  }
  return x;
}

double worst_ratio(const std::vector<double>& actual, const std::vector<double>& exact,
                   const std::vector<double>& bound) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(actual[i] - exact[i]) / bound[i]);
  return worst;
}

TEST(Muon, BoundSeesAMissingStepAndANarrowIterationAtEverySize) {
  for (const auto& [m, n] : {std::pair{16, 16}, {64, 64}, {48, 384}, {160, 160}}) {
    const auto inputs = muon_inputs(m, n, 1);
    const auto exact = output("muon", "orthogonal_1", inputs).values();
    const auto bound =
        tensor_of(compute_bound(find_operator("muon"), inputs, {}, float32_model), "orthogonal_1").values();
    EXPECT_LT(worst_ratio(iterated(inputs, 5, DType::float32), exact, bound), 0.1) << m;
    EXPECT_GT(worst_ratio(iterated(inputs, 4, {}), exact, bound), 100) << m;
    EXPECT_GT(worst_ratio(iterated(inputs, 6, {}), exact, bound), 100) << m;
    EXPECT_GT(worst_ratio(iterated(inputs, 5, DType::bfloat16), exact, bound), 10) << m;
    EXPECT_GT(worst_ratio(iterated(inputs, 5, DType::tfloat32), exact, bound), 2) << m;
    EXPECT_GT(worst_ratio(std::vector<double>(exact.size()), exact, bound), 100) << m;
  }
}

// Equal numbers are rounded alike: their errors add up.
TEST(Muon, BoundHoldsWhereRoundingsAreNotIndependent) {
  for (const int repeats : {2, 64}) {
    auto inputs = muon_inputs(64, 64, 1);
    std::vector<double> g = inputs[1].tensor.values();
    const std::size_t kept = g.size() / static_cast<std::size_t>(repeats);
    for (std::size_t i = kept; i < g.size(); ++i) g[i] = g[i - kept];
    inputs[1].tensor = Tensor::from_values(DType::float32, {1, 64, 64}, g);
    const auto exact = output("muon", "orthogonal_1", inputs).values();
    const auto bound =
        tensor_of(compute_bound(find_operator("muon"), inputs, {}, float32_model), "orthogonal_1").values();
    EXPECT_LT(worst_ratio(iterated(inputs, 5, DType::float32), exact, bound), 0.1);
    EXPECT_GT(worst_ratio(iterated(inputs, 4, {}), exact, bound), 5);
  }
}

class WrongOptimizer : public testing::TestWithParam<Wrong> {};

TEST_P(WrongOptimizer, IsAnErrorThatSaysSo) {
  expect_error(GetParam());
}

const std::vector<NamedTensor> vector_inputs = {zeros("param", {2}), zeros("grads", {3, 2})};
const std::vector<NamedTensor> matrix_inputs = {zeros("param", {2, 4}), zeros("grads", {3, 2, 4})};
const std::vector<NamedTensor> with_buffer = {zeros("param", {2}), zeros("grads", {3, 2}),
                                              zeros("momentum_buffer", {2})};
INSTANTIATE_TEST_SUITE_P(
    Calls, WrongOptimizer,
    testing::Values(
        Wrong{"adam", vector_inputs, "steps=2", "adam: steps is 2; grads has shape [3, 2]"},
        Wrong{"adam", vector_inputs, "betas=0.9", "betas has 1 values; expected 2"},
        Wrong{"adamw", vector_inputs, "eps_placement=\"under\"", "expected outside, inside or hat"},
        Wrong{"sgd", vector_inputs, "steps=4", "sgd: steps is 4"},
        Wrong{"sgd", vector_inputs, "nesterov=true", "nesterov with momentum 0"},
        Wrong{"sgd", vector_inputs, "nesterov=true,momentum=0.9,dampening=0.1", "no dampening"},
        Wrong{"sgd", with_buffer, "", "a momentum_buffer is given, but momentum is 0"},
        Wrong{"muon", vector_inputs, "", "'param' has shape [2]; expected [M,N]"},
        Wrong{"muon", matrix_inputs, "steps=1", "muon: steps is 1"},
        Wrong{"muon", matrix_inputs, "scale=\"big\"", "scale is \"big\"; expected sqrt_max_1_rows_over_cols"},
        Wrong{"muon", matrix_inputs, "ns_steps=-1", "ns_steps is -1"},
        Wrong{"muon", matrix_inputs, "coefficients=[1,2,3,4,5,6]", "expected 3, or 3 for each of 5 steps"}));

}  // namespace
}  // namespace assay::optimizers_test
