#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/golden/bound.h"
#include "assay/golden/summation.h"
#include "calls.h"

// Attention beyond what every operator must hold to: what is masked goes nowhere, whatever it holds.
namespace assay::attention_test {
namespace {

const Operator& attention() {
  return find_operator("attention");
}

// 2 queries, 3 keys, of which the second is masked.
std::vector<NamedTensor> call(double masked) {
  return {values("q", {2, 1}, {.5, -1}), values("k", {3, 1}, {1, masked, -.25}),
          values("v", {3, 1}, {2, masked, 4}), values("grad_out", {2, 1}, {1, .75}),
          values("grad_lse", {2}, {.5, -.5})};
}

TEST(Attention, MaskedKeysGoNowhereWhateverTheyHold) {
  const std::vector<NamedTensor> hiding = {indices("mask", {3}, {1, 0, 1}),
                                           values("bias", {3}, {0, -infinity, 0})};
  for (const NamedTensor& hides : hiding) {
    std::vector<NamedTensor> inputs = call(0);
    inputs.push_back(hides);
    const auto clean = compute_golden(attention(), inputs, {}, Level::fp64);
    for (const double value : {std::nan(""), infinity, 1e300}) {
      inputs = call(value);
      inputs.push_back(hides);
      for (const Level level : {Level::fp64, Level::report}) {
        const auto golden = compute_golden(attention(), inputs, {}, level);
        for (const NamedTensor& output : golden) {
          const std::vector<double> found = output.tensor.values(),
                                    expected = tensor_of(clean, output.name).values();
          for (std::size_t i = 0; i < found.size(); ++i) {
            EXPECT_NEAR(found[i], expected[i], level == Level::fp64 ? 0 : 1e-5)
                << hides.name << ' ' << output.name;
          }
        }
      }
    }
    EXPECT_EQ(tensor_of(clean, "grad_k").value(1), 0);
    EXPECT_EQ(tensor_of(clean, "grad_v").value(1), 0);
  }
}

// Queries of more than two blocks, grouped heads, a window: the first keys of later blocks are hidden.
std::vector<NamedTensor> long_call() {
  constexpr std::int64_t H = 4, G = 2, L = 130, D = 6, V = 9;
  const auto wave = [](const char* name, const Shape& shape, double speed) {
    std::vector<double> x(static_cast<std::size_t>(element_count(shape)));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(speed * static_cast<double>(i + 1));
    return values(name, shape, x);
  };
  return {wave("q", {H, L, D}, 1.1), wave("k", {G, L, D}, 2.3), wave("v", {G, L, V}, 3.7),
          wave("grad_out", {H, L, V}, 0.9)};
}
const Attributes windowed = attributes_of("is_causal=true,window_size=[40,-1]");

TEST(Attention, ProductsOfMatricesHaveTheBitsOfPlainSums) {
  const auto at_once = compute_golden(attention(), long_call(), windowed, Level::fp64);
  const SummationScope one_by_one(Summation{});
  for (const NamedTensor& plain : compute_golden(attention(), long_call(), windowed, Level::fp64))
    EXPECT_EQ(tensor_of(at_once, plain.name).values(), plain.tensor.values()) << plain.name;
}

TEST(Attention, AQuickBoundIsNoMoreThanTheWhole) {
  for (const double infinite : {0.0, infinity}) {
    std::vector<NamedTensor> inputs = long_call();
    if (infinite > 0) {
      std::vector<double> k = inputs[1].tensor.values();
      k[7] = infinite;
      inputs[1] = values("k", {2, 130, 6}, k);
    }
    ErrorModel device = float32_device;
    const auto whole = compute_bound(attention(), inputs, windowed, device);
    device.quick = true;
    for (const NamedTensor& quick : compute_bound(attention(), inputs, windowed, device)) {
      const Tensor& most = tensor_of(whole, quick.name);
      for (std::int64_t i = 0; i < most.size(); ++i) {
        if (std::isnan(most.value(i))) continue;
        ASSERT_LE(quick.tensor.value(i), most.value(i) * (1 + 1e-9)) << quick.name << " " << i;
      }
    }
  }
}

TEST(Attention, AQueryWithoutKeysHasNoOutputAndNoGradient) {
  std::vector<NamedTensor> inputs = call(std::nan(""));
  inputs.push_back(indices("mask", {1}, {0}));
  const auto golden = compute_golden(attention(), inputs, {}, Level::fp64);
  for (const NamedTensor& output : golden) {
    for (const double v : output.tensor.values())
      EXPECT_EQ(v, output.name == "lse" ? -infinity : 0) << output.name;
  }
  for (const NamedTensor& bound : compute_bound(attention(), inputs, {}, {0x1p-24, 0x1p-149})) {
    for (const double v : bound.tensor.values()) EXPECT_EQ(v, 0) << bound.name;
  }
}

// Scores near 1000: exp would overflow without the shift, and the lse keeps its digits.
TEST(Attention, LargeScoresDoNotOverflow) {
  const auto scalar = [](std::string name, std::vector<double> v) {
    const auto n = static_cast<std::int64_t>(v.size());
    return NamedTensor{std::move(name), Tensor::from_values(DType::float64, {n, 1}, v)};
  };
  const auto golden =
      compute_golden(attention(), std::vector{scalar("q", {1000}), scalar("k", {1, 1}), scalar("v", {1, 3})},
                     {}, Level::fp64);
  EXPECT_EQ(tensor_of(golden, "out").value(0), 2);
  EXPECT_EQ(tensor_of(golden, "lse").value(0), 1000 + std::log(2.));
}

// Flash kernels keep p and ds in bfloat16 between two products: u = 2^-8 of each term; the lse never sees it.
TEST(Attention, NarrowProbabilitiesWidenTheBoundOfWhatIsMadeOfThem) {
  const std::vector<NamedTensor> inputs = call(.5);
  const auto plain = compute_bound(attention(), inputs, {}, float32_device);
  ErrorModel flash = float32_device;
  flash.stored_roundoff = 0x1p-8;
  for (const NamedTensor& narrow : compute_bound(attention(), inputs, {}, flash)) {
    const std::vector<double> before = tensor_of(plain, narrow.name).values(), after = narrow.tensor.values();
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (narrow.name == "lse") {
        EXPECT_EQ(after[i], before[i]);
      } else {
        EXPECT_GT(after[i], before[i] + 0x1p-14) << narrow.name << " at " << i;
      }
    }
  }
  // With the lse's gradient alone, ds = p grad_lse is all that is stored.
  std::vector<NamedTensor> of_lse = call(.5);
  of_lse[3].tensor = Tensor(DType::float64, {2, 1});
  for (const NamedTensor& narrow : compute_bound(attention(), of_lse, {}, flash)) {
    if (narrow.name == "grad_q" || narrow.name == "grad_k") {
      EXPECT_GT(narrow.tensor.value(0), 0x1p-14) << narrow.name;
    }
  }
}

class WrongAttention : public testing::TestWithParam<Wrong> {};

TEST_P(WrongAttention, IsAnErrorThatSaysSo) {
  Wrong call = GetParam();  // beside or instead of good inputs
  using Inputs = std::vector<NamedTensor>;
  const Inputs gates = {zeros("a", {2, 3, 2}), zeros("b", {2, 3, 2}), zeros("A_log", {2}),
                        zeros("dt_bias", {2})};
  const std::map<std::string, Inputs> by_op = {
      {"attention", {zeros("q", {2, 4, 3}), zeros("k", {2, 5, 3}), zeros("v", {2, 5, 3})}},
      {"linear_attention", {zeros("q", {1, 3, 2, 4}), zeros("k", {1, 3, 2, 4}), zeros("v", {1, 3, 2, 5})}},
      {"gated_delta_net", {zeros("q", {2, 3, 4}), zeros("k", {2, 3, 4}), zeros("v", {2, 3, 6})}},
      {"qkv_gated_delta_net", {zeros("qkv", {2, 12, 5})}},
      {"causal_conv1d", {zeros("x", {2, 3, 5}), zeros("weight", {3, 4})}}};
  Inputs good = by_op.at(call.op);
  if (call.op.ends_with("gated_delta_net")) good.insert(good.end(), gates.begin(), gates.end());
  for (const NamedTensor& input : good) {
    if (std::ranges::find(call.inputs, input.name, &NamedTensor::name) == call.inputs.end())
      call.inputs.push_back(input);
  }
  expect_error(call);
}

INSTANTIATE_TEST_SUITE_P(
    Calls, WrongAttention,
    testing::Values(
        Wrong{"attention", {zeros("q", {3, 4, 3})}, "", "q has 3 heads, k 2"},
        Wrong{"attention", {zeros("q", {3})}, "", "'q' has shape [3]; expected [B*,H*,L,D]"},
        Wrong{"attention", {zeros("q", {2, 4, 2})}, "", "'k' has shape [2, 5, 3]"},
        Wrong{"attention", {zeros("v", {2, 4, 3})}, "", "'v' has shape [2, 4, 3]"},
        Wrong{"attention",
              {},
              "alignment=\"middle\"",
              "alignment is \"middle\"; expected top_left or bottom_right"},
        Wrong{"attention", {}, "window_size=[1]", "window_size must be [left, right]"},
        Wrong{"attention", {}, "window_size=[1,-2]", "window_size must be [left, right]"},
        Wrong{"attention", {}, "softcap=-1", "softcap is -1"},
        Wrong{
            "attention", {indices("mask", {4, 4}, std::vector<std::int64_t>(16))}, "", "cannot be broadcast"},
        Wrong{"attention",
              {zeros("bias", {3, 2, 4, 5})},
              "",
              "'bias' has shape [3, 2, 4, 5]; it must broadcast"},
        Wrong{"attention",
              {indices("document_k", {5}, {0, 0, 0, 0, 0})},
              "",
              "'document_k' needs 'document_q'"},
        Wrong{"attention",
              {indices("document_q", {4}, {0, 0, 0, 0})},
              "",
              "4 queries have 5 keys; 'document_q' needs 'document_k'"},
        Wrong{"attention",
              {indices("cu_seqlens_q", {2}, {0, 5}), indices("cu_seqlens_k", {2}, {0, 5})},
              "",
              "'cu_seqlens_q' must begin with 0 and end at most at the 4 tokens"},
        Wrong{"attention",
              {indices("cu_seqlens_q", {3}, {0, 3, 2}), indices("cu_seqlens_k", {3}, {0, 3, 5})},
              "",
              "'cu_seqlens_q' goes from 3 down to 2"},
        Wrong{"linear_attention", {zeros("q", {1, 3, 3, 4})}, "", "3 heads of q, 2 of k, 2 of v"},
        Wrong{"linear_attention", {zeros("k", {1, 3, 2, 5})}, "", "heads of q have 4 channels, of k 5"},
        Wrong{"linear_attention", {zeros("q", {4})}, "", "'q' has shape [4]; expected [B*,T,H,D]"},
        Wrong{"linear_attention", {}, "q_num_heads=2", "q_num_heads and kv_num_heads belong together"},
        Wrong{"linear_attention",
              {zeros("q", {1, 3, 8}), zeros("k", {1, 3, 8}), zeros("v", {1, 3, 5})},
              "q_num_heads=2,kv_num_heads=2",
              "'v' has 5 channels for 2 heads"},
        Wrong{"linear_attention", {}, "update_rule=\"mamba\"", "update_rule is \"mamba\"; expected linear"},
        Wrong{"linear_attention",
              {},
              "update_rule=\"gated\"",
              "\"gated\" does not go without decay and without beta"},
        Wrong{"linear_attention", {zeros("beta", {1, 3, 3})}, "", "beta has 3 heads; expected 2 or 1"},
        Wrong{
            "linear_attention",
            {zeros("q", {1, 3, 8}), zeros("k", {1, 3, 8}), zeros("v", {1, 3, 4}), zeros("decay", {1, 3, 3})},
            "q_num_heads=2,kv_num_heads=2",
            "decay has 3 channels; expected one for each of 2 heads, or 4 for each"},
        Wrong{"gated_delta_net", {zeros("a", {1, 3, 3})}, "", "a has shape [1, 3, 3] for 2 heads"},
        Wrong{"gated_delta_net", {}, "num_k_heads=3", "3 heads of q and k for 2 of v; expected a divisor"},
        Wrong{"gated_delta_net", {zeros("k", {2, 3, 6})}, "", "q has 4 channels, k 6 and v 6"},
        Wrong{"qkv_gated_delta_net",
              {},
              "head_v_dim=7",
              "qkv has 12 channels for 2 heads of q and k and 2 of v with 7"},
        Wrong{"qkv_gated_delta_net", {zeros("qkv", {2, 12, 2})}, "", "qkv has 2 tokens and a 3"},
        Wrong{"qkv_gated_delta_net",
              {},
              "activation=\"gelu\"",
              "activation is \"gelu\"; expected none or silu"},
        Wrong{"causal_conv1d", {zeros("weight", {3, 2, 4})}, "", "expected [C, W] or [C, 1, W]"}));

}  // namespace
}  // namespace assay::attention_test
