#include "assay/operators/engine/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "calls.h"
#include "every_operator.h"
#include "split_sums.h"

// The exact arithmetic: what is split over ranks and micro-batches has the bits of the whole.
namespace assay::exact_test {
namespace {

std::vector<std::byte> bits(const Tensor& t) {
  return {t.bytes().begin(), t.bytes().end()};
}
bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && bits(a) == bits(b);
}

class SplitSums : public testing::TestWithParam<Split> {};
INSTANTIATE_TEST_SUITE_P(Operators, SplitSums, testing::ValuesIn(splits()), [](const auto& info) {
  return std::string(info.param.op) + "_" + std::string(info.param.sums[0]) + "_" +
         std::to_string(info.index);
});

TEST_P(SplitSums, HaveTheBitsOfTheWhole) {
  const Split& split = GetParam();
  const Operator& op = find_operator(split.op);
  std::size_t most_parts = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const SplitCall call = make_call(split, random);
    const auto whole = compute_exact(op, call.whole.inputs, call.whole.attributes);
    std::vector<std::vector<NamedTensor>> shards;
    for (const CallInputs& shard : call.shards)
      shards.push_back(compute_exact(op, shard.inputs, shard.attributes));
    for (const std::string_view name : split.sums) {
      std::vector<Tensor> parts;
      for (const auto& shard : shards) parts.push_back(output_named(shard, name));
      std::ranges::shuffle(parts, random);
      const Tensor sum = add_unrounded(parts), expected = output_named(whole, name);
      most_parts = std::max(most_parts, static_cast<std::size_t>(expected.shape()[0]));
      ASSERT_TRUE(same_bits(sum, expected)) << name << ", seed " << seed;
      const Tensor rounded = round_unrounded(expected, DType::float32);
      ASSERT_TRUE(same_bits(round_unrounded(sum, DType::float32), rounded)) << name << ", seed " << seed;
    }
  }
  EXPECT_GE(most_parts, 2u) << "inputs that lose nothing prove nothing";
}

TEST(SplitSums, AreTriedForEveryOperatorThatHasThem) {
  std::set<std::string_view> declared, tried;
  for (const Operator* op : operators()) {
    if (op->run_unrounded != nullptr) declared.insert(op->name);
  }
  for (const Split& split : splits()) tried.insert(split.op);
  EXPECT_EQ(tried, declared);
}

// 50 digits hold sums of float32 products whose exponents are not far apart.
TEST(Exact, IsTheTruthRoundedOnce) {
  const std::pair<std::string_view, std::string_view> calls[] = {
      {"linear", "N=7,K=50,M=9"}, {"grouped_matmul", "T=40,K=9,G=3,N=11"}, {"reduce_sum", "S=40x30"}};
  for (const auto& [name, sizes] : calls) {
    const Operator& op = find_operator(name);
    const CallShape call = parse_call({sizes, name == "reduce_sum" ? "dims=[1]" : ""});
    std::mt19937_64 random(1);
    auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 1);
    for (NamedTensor& input : inputs) {
      if (is_float(input.tensor.dtype())) input.tensor = random_tensor(input.tensor.shape(), 12, random);
    }
    const auto truths = outputs<Truth>(op, inputs, call.attributes);
    for (const auto& [output, tensor] : compute_exact(op, inputs, call.attributes)) {
      const std::vector<Truth>& truth = truths.at(output);
      const auto doubles = round_unrounded(tensor, DType::float64).values(),
                 floats = round_unrounded(tensor, DType::float32).values();
      ASSERT_EQ(doubles.size(), truth.size());
      for (std::size_t i = 0; i < truth.size(); ++i) {
        ASSERT_EQ(doubles[i], static_cast<double>(truth[i])) << name << ' ' << output << " at " << i;
        ASSERT_EQ(floats[i], round_to(DType::float32, to_odd(truth[i]))) << name << ' ' << output;
      }
    }
  }
}

TEST(Exact, SumsOfOtherOperatorsHaveNoOrder) {
  std::mt19937_64 random(2);
  std::vector<double> x = random_tensor({200}, 30, random).values();
  std::set<double> results;
  for (int order = 0; order < 10; ++order) {
    const auto outputs = compute_exact(find_operator("reduce_mean"), std::vector{values("x", x)}, {});
    results.insert(output_named(outputs, "y").value(0));
    std::ranges::shuffle(x, random);
  }
  EXPECT_EQ(results.size(), 1u);
}

class ExactOutputs : public EveryOperator {};
INSTANTIATE_TEST_SUITE_P(Operators, ExactOutputs, testing::ValuesIn(operators()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(ExactOutputs, AreThoseOfFloat64ButForTheRoundingOfSums) {
  for (const CallShape& call : calls()) {
    const auto inputs = generate_inputs(op, call, Fill::random, DType::float32, 3);
    const auto golden = compute_golden(op, inputs, call.attributes, Level::fp64),
               exact = compute_exact(op, inputs, call.attributes);
    ASSERT_EQ(exact.size(), golden.size());
    for (std::size_t t = 0; t < exact.size(); ++t) {
      ASSERT_EQ(exact[t].name, golden[t].name);
      if (!is_float(golden[t].tensor.dtype())) {
        EXPECT_TRUE(same_bits(exact[t].tensor, golden[t].tensor)) << exact[t].name;
        continue;
      }
      if (op.run_unrounded == nullptr) {
        EXPECT_EQ(exact[t].tensor.shape()[0], 1);
      }
      const Tensor rounded = round_unrounded(exact[t].tensor, DType::float64);
      EXPECT_EQ(rounded.shape(), golden[t].tensor.shape());
      const auto e = rounded.values(), g = golden[t].tensor.values();
      const double allowed = 1e-12 * (1 + magnitude(g));
      for (std::size_t i = 0; i < e.size(); ++i) {
        EXPECT_TRUE(std::abs(e[i] - g[i]) <= allowed || e[i] == g[i] ||
                    (std::isnan(e[i]) && std::isnan(g[i])))
            << exact[t].name << " at " << i << ": " << e[i] << ", in float64 " << g[i];
      }
    }
  }
}

TEST(Exact, CopiesKeepTheirBits) {
  const auto outputs = compute_exact(
      find_operator("embedding"),
      std::vector{values("weight", {2, 2}, {-0., 1, 2, infinity}), indices("index", {2}, {1, 0})}, {});
  const Tensor y = output_named(outputs, "y");
  EXPECT_TRUE(same_bits(y, values("y", {1, 2, 2}, {2, infinity, -0., 1}).tensor));
}

// A rank whose only copy has the gradient -0, and one that has none, together have that of one rank.
TEST(Exact, ASumOfNegativeZerosIsZero) {
  for (const auto& index : {std::vector<std::int64_t>{0}, {0, 0}}) {
    const auto count = static_cast<std::int64_t>(index.size());
    const auto outputs =
        compute_exact(find_operator("index_select"),
                      std::vector{values("x", {1, 1}, {1}), indices("index", {count}, index),
                                  values("grad_y", {count, 1}, std::vector<double>(index.size(), -0.))},
                      {});
    EXPECT_TRUE(same_bits(output_named(outputs, "grad_x"), values("", {1, 1, 1}, {0}).tensor));
  }
}

TEST(Exact, PartsThatAreMissingAreNegativeZeros) {
  const Tensor a = unrounded(values("", {3}, {1, -0., 0}).tensor);
  EXPECT_TRUE(same_bits(add_unrounded(std::vector{a}), a));
  const Tensor b = unrounded(values("", {3}, {0x1p-80, -0., 0}).tensor);
  EXPECT_TRUE(
      same_bits(add_unrounded(std::vector{a, b}), values("", {2, 3}, {1, -0., 0, 0x1p-80, -0., -0.}).tensor));
  EXPECT_TRUE(same_bits(round_unrounded(add_unrounded(std::vector{a, b}), DType::float64),
                        values("", {3}, {1, -0., 0}).tensor));
}

TEST(Exact, UnroundedTensorsThatDoNotFitAreErrors) {
  const Tensor a = unrounded(values("", {3}, {1, 2, 3}).tensor),
               b = unrounded(values("", {2}, {1, 2}).tensor);
  const auto message = [](const char* text) {
    return testing::ThrowsMessage<Error>(testing::HasSubstr(text));
  };
  EXPECT_THAT([] { add_unrounded({}); }, message("no tensors"));
  EXPECT_THAT([&] { add_unrounded(std::vector{a, b}); }, message("only their parts may differ"));
  EXPECT_THAT(
      [] {
        round_unrounded(Tensor(DType::float32, {1, 2}), DType::float32);
      },
      message("expected float64 [parts, ...]"));
  EXPECT_THAT(
      [] {
        round_unrounded(Tensor(DType::float64, {0, 2}), DType::float32);
      },
      message("[parts, ...]"));
  EXPECT_THAT([] { round_unrounded(values("", {}, {1}).tensor, DType::float32); }, message("[parts, ...]"));
}

TEST(Exact, ASumBeyondFloat64IsAnError) {
  const std::vector inputs = {values("x", {1, 2}, {1e200, 1e200}), values("w", {1, 2}, {1e108, 1e108})};
  EXPECT_THAT([&] { compute_exact(find_operator("linear"), inputs, {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("beyond the range of float64")));
}

}  // namespace
}  // namespace assay::exact_test
