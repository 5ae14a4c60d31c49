// A factor of a result whose steps are stored in a narrow dtype: its elements share roundings.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "assay/compare/calls/call.h"
#include "assay/compare/calls/scale_of_groups.h"
#include "recorded_pair.h"

namespace assay::scale_of_steps_test {
namespace {

// `groups` of 32 elements, each off by a factor of its own, and all by one.
ScaleError of_groups(std::int64_t groups, double each, double all, bool alike = false) {
  Random random(3);
  const Values one = random.normals(32);
  Values golden, actual;
  ScaleTest test;
  for (std::int64_t g = 0; g < groups; ++g) {
    const Values values = alike ? one : random.normals(32);
    const double factor = (1 + all) * (1 + each * (alike ? 1 : random.normals(1).front()));
    for (const double v : values) {
      golden.push_back(v);
      actual.push_back(v * factor);
      test.apart.push_back(g);
    }
  }
  const Values allowed(golden.size(), 1);
  test.golden = golden;
  test.actual = actual;
  test.allowed = allowed;
  return scale_of_groups(test);
}

TEST(ScaleOfGroups, TellsTheFactorOfAllFromThoseOfEach) {
  for (const std::int64_t groups : {16, 64, 1000}) {
    const ScaleError clean = of_groups(groups, 1e-3, 0), wrong = of_groups(groups, 1e-3, 2e-2);
    EXPECT_TRUE(clean.within()) << groups << ": " << clean.excess << " of " << clean.allowed;
    EXPECT_FALSE(wrong.within()) << groups << ": " << wrong.excess << " of " << wrong.allowed;
    EXPECT_NEAR(wrong.excess, 2e-2, 1e-3);
  }
  EXPECT_TRUE(of_groups(3, 1e-3, 2e-2).within()) << "three say little";
}

TEST(ScaleOfGroups, WhatIsMadeOfEqualNumbersIsOneGroup) {
  const ScaleError error = of_groups(64, 1e-2, 0, true);
  EXPECT_EQ(error.allowed, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(error.within());
}

struct Stored {
  const char *op, *output;
  std::vector<NamedTensor> inputs;
  Attributes attributes;
};

// The golden result times one factor, and one near 1 for each of `apart`.
bool is_within_as_a_whole(const Stored& of, double factor) {
  const Operator& op = find_operator(of.op);
  const Tensor golden =
      output_named(compute_golden(op, of.inputs, of.attributes, Level::fp64, of.output), of.output);
  const Attributes complete = complete_attributes(op, of.attributes);
  const std::vector<std::int64_t> apart =
      op.steps_apart(of.output, golden.shape(), bind_dims(op, shapes_of(of.inputs), complete), complete);
  Values values = golden.values();
  EXPECT_EQ(apart.size(), values.size());
  Random random(11);
  std::map<std::int64_t, double> of_group;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [at, is_new] = of_group.emplace(apart[i], 1);
    if (is_new) at->second += 1e-3 * random.normals(1).front();
    values[i] *= factor * at->second;
  }
  Device device = Device::of(DType::bfloat16);
  device.intermediate = DType::bfloat16;
  const Call call(op, of.inputs, of.output, Tensor::from_values(DType::bfloat16, golden.shape(), values),
                  device);
  CallVariant variant;
  variant.attributes = of.attributes;
  const auto compared = call.compare(variant);
  if (factor == 1) {
    EXPECT_LE(compared->ratio, 1) << of.op << ' ' << of.output;
  }
  return !compared->scale || compared->scale->within();
}

TEST(ScaleOfSteps, ExpertsAndAttentionThatAreOffByTwoInAHundredAreFound) {
  const auto of = [](const Shape& shape, std::uint64_t seed, double scale = 1) {
    return normal_tensor(DType::bfloat16, shape, seed, scale);
  };
  std::vector<std::int64_t> choices;
  for (std::int64_t i = 0; i < 2 * 64; ++i) choices.push_back((i + i / 8) % 4);
  const std::vector<NamedTensor> experts = {{"x", of({64, 16}, 1)},
                                            {"index", Tensor::from_indices({64, 2}, choices)},
                                            {"weights", of({64, 2}, 2)},
                                            {"gate_up", of({4, 24, 16}, 3, 0.25)},
                                            {"down", of({4, 16, 12}, 4, 0.25)},
                                            {"grad_y", of({64, 16}, 5)}};
  const std::vector<NamedTensor> attention = {{"q", of({2, 12, 256}, 1)},
                                              {"k", of({2, 12, 128}, 2)},
                                              {"v", of({2, 12, 128}, 3)},
                                              {"grad_out", of({2, 12, 256}, 4)}},
                                 crossed = {{"q", of({4, 5, 128}, 1)},
                                            {"k", of({4, 9, 128}, 2)},
                                            {"v", of({4, 9, 128}, 3)},
                                            {"grad_out", of({4, 5, 128}, 4)}},
                                 fused = {{"qkv", of({2, 12, 512}, 1)}, {"grad_out", of({2, 12, 256}, 4)}};
  std::vector<NamedTensor> delta = {{"a", of({2, 12, 32}, 3)},
                                    {"b", of({2, 12, 32}, 4)},
                                    {"A_log", of({32}, 5)},
                                    {"dt_bias", of({32}, 6)},
                                    {"grad_out", of({2, 12, 256}, 7)}};
  std::vector<NamedTensor> of_qkv = delta;
  of_qkv.push_back({"qkv", of({2, 512, 14}, 1)});
  for (const char* name : {"q", "k"}) delta.push_back({name, of({2, 12, 128}, name[0] == 'q' ? 1U : 2U)});
  delta.push_back({"v", of({2, 12, 256}, 8)});
  const Attributes by_8 = {{"head_dim", 8.0}, {"is_causal", false}};
  for (const Stored& one :
       {Stored{"moe_experts", "y", experts, {}}, Stored{"moe_experts", "grad_x", experts, {}},
        Stored{"rotary_attention", "grad_q", attention, by_8},
        Stored{"rotary_attention", "grad_k", attention, by_8},
        Stored{"rotary_attention", "grad_v", attention, by_8},
        Stored{"cross_attention", "grad_k", crossed, {{"head_dim", 8.0}}},
        Stored{"gated_delta_net", "out", delta, {{"num_k_heads", 16.0}}},
        Stored{"gated_delta_net", "grad_q", delta, {{"num_k_heads", 16.0}}},
        Stored{"gated_delta_net", "grad_a", delta, {{"num_k_heads", 16.0}}},
        Stored{"qkv_gated_delta_net", "grad_qkv", of_qkv, {{"num_k_heads", 16.0}}},
        Stored{"qkv_attention", "grad_qkv", fused, {{"heads", 32.0}, {"groups", 16.0}}}}) {
    EXPECT_TRUE(is_within_as_a_whole(one, 1)) << one.op << ' ' << one.output;
    EXPECT_FALSE(is_within_as_a_whole(one, 1.02)) << one.op << ' ' << one.output;
  }
}

}  // namespace
}  // namespace assay::scale_of_steps_test
