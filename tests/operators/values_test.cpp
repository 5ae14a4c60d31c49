#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "calls.h"

// Values that are known by hand, at the places where an operator is easily wrong.
namespace assay::values_test {
namespace {

using testing::ElementsAre;

TEST(MatMul, VectorsAndBroadcastBatchesAsTorch) {
  const auto a = values("a", {3}, {1, 2, 3}), b = values("b", {2, 3, 1}, {1, 1, 1, 1, 0, -1});
  EXPECT_EQ(output("matmul", "y", {a, b}).shape(), (Shape{2, 1}));
  EXPECT_THAT(output("matmul", "y", {a, b}).values(), ElementsAre(6, -2));
  const auto g = values("grad_y", {2, 1}, {1, 10});
  EXPECT_THAT(output("matmul", "grad_a", {a, b, g}).values(), ElementsAre(11, 1, -9));
  EXPECT_THAT(output("matmul", "grad_b", {a, b, g}).values(), ElementsAre(1, 2, 3, 10, 20, 30));
  const auto v = values("b", {3}, {1, 1, 1});
  EXPECT_EQ(output("matmul", "y", {a, v}).shape(), Shape());
}

TEST(CrossEntropy, MeanDividesByTheTargetsThatCount) {
  const auto logits = values("logits", {3, 2}, {0, 0, 0, 0, 5, 1});
  const auto target = indices("target", {3}, {0, 1, -100});
  EXPECT_DOUBLE_EQ(output("cross_entropy", "loss", {logits, target}).value(0), std::log(2));
  const auto none = output("cross_entropy", "loss", {logits, target}, "reduction=\"none\"");
  EXPECT_EQ(none.shape(), Shape{3});
  EXPECT_EQ(none.value(2), 0);
  const auto g = values("grad_y", {}, {1});
  EXPECT_THAT(output("cross_entropy", "grad_logits", {logits, target, g}).values(),
              ElementsAre(-.25, .25, .25, -.25, 0, 0));
}

TEST(CrossEntropy, WithoutTargetsTheMeanIsNaNAndTheSumZero) {
  const auto logits = values("logits", {1, 2}, {1, 2});
  const auto target = indices("target", {1}, {-100});
  EXPECT_TRUE(std::isnan(output("cross_entropy", "loss", {logits, target}).value(0)));
  EXPECT_EQ(output("cross_entropy", "loss", {logits, target}, "reduction=\"sum\"").value(0), 0);
}

// log(1 + e^-50) is 0 where it is computed as log(sum): the loss of a confident model must not vanish.
TEST(CrossEntropy, SmallLossesAndGradientsKeepTheirDigits) {
  const auto logits = values("logits", {1, 2}, {50, 0});
  const auto target = indices("target", {1}, {0});
  const auto g = values("grad_y", {}, {1});
  EXPECT_DOUBLE_EQ(output("cross_entropy", "loss", {logits, target}).value(0), std::exp(-50));
  EXPECT_DOUBLE_EQ(output("cross_entropy", "grad_logits", {logits, target, g}).value(0), -std::exp(-50));
}

TEST(CrossEntropy, WeightAndSmoothingAsTorch) {
  // torch 2: cross_entropy([[1, 2, 3], [1, 1, 1]], [2, 0], weight=[1, 2, 4], label_smoothing=.3)
  const auto logits = values("logits", {2, 3}, {1, 2, 3, 1, 1, 1});
  const auto target = indices("target", {2}, {2, 0});
  const auto weight = values("weight", {3}, {1, 2, 4});
  const double lse = std::log(std::exp(1) + std::exp(2) + std::exp(3));
  const double first = .7 * 4 * (lse - 3) + .1 * ((lse - 1) + 2 * (lse - 2) + 4 * (lse - 3));
  const double second = .7 * std::log(3) + .1 * 7 * std::log(3);
  EXPECT_NEAR(output("cross_entropy", "loss", {logits, target, weight}, "label_smoothing=0.3").value(0),
              (first + second) / 5, 1e-15);
}

TEST(Softmax, SurvivesLargeInputsAndIsNaNWithoutAFiniteMaximum) {
  EXPECT_THAT(output("softmax", "y", {values("x", {1, 2}, {1e300, 1e300})}).values(), ElementsAre(.5, .5));
  EXPECT_THAT(output("softmax", "y", {values("x", {1, 2}, {-infinity, 3})}).values(), ElementsAre(0, 1));
  for (const double x : {infinity, -infinity}) {
    const Tensor y = output("softmax", "y", {values("x", {1, 2}, {x, x})});
    EXPECT_TRUE(std::isnan(y.value(0)) && std::isnan(y.value(1))) << x;
  }
  EXPECT_THAT(output("softmax", "y", {values("x", {}, {3})}).values(), ElementsAre(1));
}

TEST(Silu, DoesNotOverflow) {
  const Tensor y = output("silu", "y", {values("x", {4}, {1000, -1000, 0, infinity})});
  EXPECT_THAT(y.values(), ElementsAre(1000, 0, 0, infinity));
  const auto x = values("x", {2}, {700, -700}), g = values("grad_y", {2}, {1, 1});
  EXPECT_EQ(output("silu", "grad_x", {x, g}).value(0), 1);
  EXPECT_NEAR(output("silu", "grad_x", {x, g}).value(1) / (-699 * std::exp(-700)), 1, 1e-12);
}

TEST(Reductions, DimsAndKeepdimAsTorch) {
  const auto x = values("x", {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(output("reduce_sum", "y", {x}).shape(), Shape());
  EXPECT_EQ(output("reduce_sum", "y", {x}, "keepdim=true").shape(), (Shape{1, 1}));
  EXPECT_THAT(output("reduce_sum", "y", {x}, "dims=-2").values(), ElementsAre(5, 7, 9));
  EXPECT_EQ(output("reduce_sum", "y", {x}, "dims=[0],keepdim=true").shape(), (Shape{1, 3}));
  EXPECT_EQ(output("reduce_prod", "y", {x}).value(0), 720);
  EXPECT_EQ(output("reduce_prod", "y", {x}, "keepdim=true").shape(), (Shape{1, 1}));
  EXPECT_EQ(output("reduce_prod", "y", {x}, "dim=-1,keepdim=true").shape(), (Shape{2, 1}));
  EXPECT_THAT(output("reduce_prod", "y", {x}, "dim=1").values(), ElementsAre(6, 120));
}

TEST(ReduceProd, OneZeroKeepsTheProductOfTheOthersAndTwoZerosKeepNothing) {
  const auto g = values("grad_y", {}, {1});
  EXPECT_THAT(output("reduce_prod", "grad_x", {values("x", {3}, {2, 0, 5}), g}).values(),
              ElementsAre(0, 10, 0));
  EXPECT_THAT(output("reduce_prod", "grad_x", {values("x", {3}, {0, 0, 5}), g}).values(),
              ElementsAre(0, 0, 0));
}

TEST(Embedding, PaddingHasNoGradientAndFrequencyDivides) {
  const auto weight = values("weight", {2, 1}, {3, 4});
  const auto index = indices("index", {3}, {0, 0, 1});
  const auto g = values("grad_y", {3, 1}, {1, 2, 5});
  EXPECT_THAT(output("embedding", "y", {weight, index}).values(), ElementsAre(3, 3, 4));
  EXPECT_THAT(output("embedding", "grad_weight", {weight, index, g}).values(), ElementsAre(3, 5));
  EXPECT_THAT(output("embedding", "grad_weight", {weight, index, g}, "padding_idx=-1").values(),
              ElementsAre(3, 0));
  EXPECT_THAT(output("embedding", "grad_weight", {weight, index, g}, "scale_grad_by_freq=true").values(),
              ElementsAre(1.5, 5));
}

// Both styles turn the same pairs, only stored elsewhere; position 0 turns nothing.
TEST(Rope, StylesArePermutationsOfEachOther) {
  const auto half = values("x", {2, 4}, {1, 2, 3, 4, 1, 2, 3, 4});
  const auto pairs = values("x", {2, 4}, {1, 3, 2, 4, 1, 3, 2, 4});
  const auto y = output("rope", "y", {half}).values();
  const auto z = output("rope", "y", {pairs}, "style=\"interleaved\"").values();
  EXPECT_THAT(std::vector(y.begin(), y.begin() + 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(z, ElementsAre(y[0], y[2], y[1], y[3], y[4], y[6], y[5], y[7]));
  EXPECT_EQ(output("rope", "y", {half}, "offset=7").value(4),
            output("rope", "y", {half, indices("positions", {2}, {7, 8})}).value(4));
}

TEST(Rope, FrequenciesStandForTheBase) {
  const auto x = values("x", {3, 4}, {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  EXPECT_THAT(output("rope", "y", {x}, "frequencies=[1,0.01]").values(),
              testing::Pointwise(testing::DoubleNear(1e-14), output("rope", "y", {x}).values()));
  EXPECT_NE(output("rope", "y", {x}, "frequencies=[1,0.02]").values(), output("rope", "y", {x}).values());
}

TEST(ClipGradNorm, ScalesOnlyWhatIsTooLarge) {
  const auto g = values("grad_0", {2}, {3, 4});
  EXPECT_EQ(output("clip_grad_norm", "norm", {g}).value(0), 5);
  EXPECT_THAT(output("clip_grad_norm", "clipped_0", {g}, "max_norm=6").values(), ElementsAre(3, 4));
  EXPECT_THAT(output("clip_grad_norm", "clipped_0", {g}, "max_norm=2.5,eps=0").values(), ElementsAre(1.5, 2));
  EXPECT_EQ(output("clip_grad_norm", "norm", {g}, "norm_type=\"inf\"").value(0), 4);
  EXPECT_EQ(output("clip_grad_norm", "norm", {g}, "norm_type=1").value(0), 7);
}

// One call of two steps is two calls of one step that pass their state on.
TEST(AdamW, StateCarriesOver) {
  const auto param = values("param", {1}, {1});
  const auto grads = values("grads", {2, 1}, {.5, -2});
  const std::vector<NamedTensor> first = {param, values("grads", {1, 1}, {.5})};
  const std::vector<NamedTensor> second = {{"param", output("adamw", "param_1", first)},
                                           values("grads", {1, 1}, {-2}),
                                           {"exp_avg", output("adamw", "exp_avg_1", first)},
                                           {"exp_avg_sq", output("adamw", "exp_avg_sq_1", first)}};
  EXPECT_EQ(output("adamw", "param_2", {param, grads}).value(0),
            output("adamw", "param_1", second, "step=1").value(0));
  // The first step is lr in the gradient's direction, whatever its size.
  EXPECT_NEAR(output("adamw", "param_1", first, "weight_decay=0").value(0), 1 - 1e-3, 1e-10);
}

TEST(AdamW, StepsAreInTheirOrder) {
  std::vector<std::string> names;
  for (const NamedTensor& t :
       compute_golden(find_operator("adamw"),
                      std::vector<NamedTensor>{values("param", {1}, {1}),
                                               values("grads", {11, 1}, std::vector<double>(11, 1))},
                      {}, Level::fp64)) {
    names.push_back(t.name);
  }
  EXPECT_THAT(std::vector(names.begin() + 8, names.begin() + 12),
              ElementsAre("param_9", "param_10", "param_11", "exp_avg_1"));
}

// The sign of 0 / 0 is the processor's.
TEST(Golden, ComputedNaNsAreOneNaNAndCopiedOnesKeepTheirBits) {
  const auto code = [](const Tensor& t) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, t.bytes().data(), sizeof bits);
    return bits;
  };
  const auto logits = values("logits", {0, 2}, {});
  const Tensor loss = output("cross_entropy", "loss", {logits, indices("target", {0}, {})});
  EXPECT_EQ(code(loss), 0x7ff8000000000000u);
  const double payload = std::bit_cast<double>(std::uint64_t{0xfff8000000000123u});
  const Tensor y =
      output("embedding", "y", {values("weight", {1, 1}, {payload}), indices("index", {1}, {0})});
  EXPECT_EQ(code(y), 0xfff8000000000123u);
}

// A float32 kernel that is given float64 inputs rounds them first.
TEST(Bound, HoldsTheRoundingOfInputs) {
  const std::vector<NamedTensor> inputs = {values("x", {1}, {.1})};
  const auto bound = compute_bound(find_operator("reduce_sum"), inputs, {}, {0x1p-24, 0x1p-149});
  EXPECT_GE(bound[0].tensor.value(0), std::abs(static_cast<double>(.1f) - .1));
  EXPECT_LE(bound[0].tensor.value(0), 0x1p-26);
}

// Masked scores are -inf, and their neighbours are bounded as ever.
TEST(Bound, OfASoftmaxWithAMaskIsFinite) {
  const std::vector<NamedTensor> inputs = {values("x", {3}, {1, -infinity, 2}),
                                           values("grad_y", {3}, {1, 2, 3})};
  for (const auto& bound : compute_bound(find_operator("softmax"), inputs, {}, {0x1p-24, 0x1p-149})) {
    for (const double error : bound.tensor.values()) EXPECT_LE(error, 1e-5) << bound.name;
  }
}

// Outputs may be indices: an argmax, with the largest value beside it.
struct ArgMax {
  static constexpr std::string_view name = "argmax";
  static constexpr std::string_view math = "index = argmax x, y = x_index";
  static constexpr std::string_view source = "none";
  static constexpr Arg args[] = {{"x", "N*,C", Role::input},
                                 {"index", "N*", Role::output_index},
                                 {.name = "y", .shape = "N*", .role = Role::output, .exact = Exact::bits}};
  template <class T>
  static void forward(Tensors<T>& t, const Dims& d, const Attributes&) {
    const auto x = t["x"], y = t["y"];
    const auto index = t.output_index("index");
    const std::int64_t N = d.at("N"), C = d.at("C");
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t c = 1; c < C; ++c) {
        if (x(n, index(n)) < x(n, c)) index(n) = c;
      }
      y(n) = x(n, index(n));
    }
  }
};

TEST(OutputIndex, IsInt64AndNeedsNoBound) {
  static constexpr Operator argmax = describe<ArgMax>();
  const std::vector<NamedTensor> inputs = {values("x", {2, 3}, {1, 5, 2, 7, 0, 3})};
  for (const Level level : {Level::report, Level::fp64}) {
    const auto golden = compute_golden(argmax, inputs, {}, level);
    ASSERT_EQ(golden.size(), 2u);
    EXPECT_EQ(golden[0].tensor.dtype(), DType::int64);
    EXPECT_THAT(golden[0].tensor.indices(), ElementsAre(1, 0));
    EXPECT_THAT(golden[1].tensor.values(), ElementsAre(5, 7));
  }
  EXPECT_THAT(compute_bound(argmax, inputs, {}, {0x1p-24, 0x1p-149})[0].tensor.values(), ElementsAre(0, 0));
  EXPECT_EQ(accumulation_count(argmax, "index", std::vector<InputShape>{{"x", {2, 3}}}, {}), 0);
  EXPECT_EQ(output_arg(argmax, "index").role, Role::output_index);
}

TEST(Report, ComputesInFloat32) {
  const std::vector<NamedTensor> inputs = {values("x", {3}, {1, 0x1p-24, 0x1p-24})};
  const auto report = compute_golden(find_operator("reduce_sum"), inputs, {}, Level::report);
  EXPECT_EQ(report[0].tensor.dtype(), DType::float32);
  EXPECT_EQ(report[0].tensor.value(0), 1);
  EXPECT_EQ(output("reduce_sum", "y", inputs).value(0), 1 + 0x1p-23);
}

}  // namespace
}  // namespace assay::values_test
