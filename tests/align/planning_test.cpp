// Plans: memory and cost against published formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "assay/align/forward/architecture.h"
#include "assay/align/planning/enumerate.h"
#include "assay/golden/error.h"

namespace assay::align::planning_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double mega = 1e6;

// As GPT, with SwiGLU of the given size for GELU of four times the hidden size, and without biases.
Model dense_model(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t vocabulary) {
  Model m;
  m.name = "dense";
  m.layers = m.dense_layers = layers;
  m.hidden = hidden;
  m.vocabulary = vocabulary;
  m.dense_ffn = ffn;
  m.attention.heads = m.attention.kv_heads = 8;
  m.attention.head_dim = hidden / 8;
  return m;
}

struct Layer {
  double s = 32, b = 2, h = 64, a = 8;
  double sbh() const { return s * b * h; }
  double lse(double ranks) const { return 4 * a * s * b / ranks; }  // of FlashAttention, float32
  double kept(const char* parallel, Recompute mode = Recompute::none) const {
    const Storage storage = {.float32_residual = false};
    const Model m = dense_model(2, 64, 4 * 64, 512);
    const Batch batch = {2, 32};
    return measure(m, batch, parse_parallel(parallel), {1, 2, false, false}, {}, storage)
        .kept[static_cast<std::size_t>(mode)];
  }
};

// Korthikanti 2022 (arXiv 2205.05198), Table 2: of 34 sbh are 2 masks of dropout and 16 of GELU and what
// follows it; gate, up and their product of SwiGLU are 24. FlashAttention has the log-sum-exp for 5 a s s b.
TEST(Memory, ActivationsOfALayerAreThoseOfThePublishedFormula) {
  const Layer l;
  EXPECT_DOUBLE_EQ(l.kept(""), l.sbh() * (34 - 2 - 16 + 24) + l.lse(1));
  EXPECT_DOUBLE_EQ(l.kept("tp=4"), l.sbh() * (10 - 2 + (24 - 16 + 24) / 4.0) + l.lse(4));
  EXPECT_DOUBLE_EQ(l.kept("tp=4,sp=1"), l.sbh() / 4 * (34 - 2 - 16 + 24) + l.lse(4));
  EXPECT_DOUBLE_EQ(l.kept("", Recompute::full), l.sbh() * 2);
  EXPECT_DOUBLE_EQ(l.kept("tp=4,sp=1", Recompute::full), l.sbh() * 2 / 4);
  EXPECT_DOUBLE_EQ(l.kept("", Recompute::activation), l.sbh() * (34 - 2 - 16 + 16) + l.lse(1));
}

Training training_of(const Model& m, std::int64_t sequences, std::int64_t length = 32) {
  Training t;
  t.model = m;
  t.batch = {1, length};
  t.sequences = sequences;
  return t;
}

// The same, section 4.2.3: the first stage keeps as many micro-batches as there are stages, so all layers';
// interleaved 1 + (p - 1) / (p v) times as much.
TEST(Memory, TheFirstStageKeepsActivationsOfAllLayers) {
  Blocks blocks(training_of(dense_model(16, 64, 256, 512), 16));
  const double layer = blocks.layer(Parallel(), false).kept[0];
  const auto first = [&](const char* parallel) {
    return StagedModel(blocks, parse_parallel(parallel)).memory(0).activations;
  };
  EXPECT_DOUBLE_EQ(first("pp=4"), 16 * layer);
  EXPECT_DOUBLE_EQ(first("pp=4,vpp=2,schedule=interleaved"), 16 * layer * (1 + 3 / (4 * 2.0)));
}

// ZeRO (arXiv 1910.02054), Figure 1: 7.5 billion parameters on 64 devices.
TEST(Memory, StatesAreThoseOfTheZeroPaper) {
  Training t = training_of(dense_model(1, 64, 256, 512), 64);
  t.storage.gradient = 2;
  Blocks blocks(t);
  const double elements =
      StagedModel(blocks, parse_parallel("dp=64")).memory().parameters / t.storage.parameter;
  const double published[] = {120, 31.4, 16.6, 1.9};
  for (std::int64_t zero = 0; zero <= 3; ++zero) {
    StagedModel staged(blocks, parse_parallel("dp=64"));
    staged.set_zero(zero);
    const Memory m = staged.memory();
    EXPECT_NEAR((m.parameters + m.gradients + m.states) / elements * 7.5, published[zero], 0.05) << zero;
  }
}

// Megatron-LM, docs/source/api-guide/dist_optimizer.md: bf16 with float32 gradients.
TEST(Memory, StatesAreThoseOfMegatron) {
  Blocks blocks(training_of(dense_model(1, 64, 256, 512), 8));
  StagedModel staged(blocks, parse_parallel("dp=8"));
  const double elements = staged.memory().parameters / 2;
  const auto bytes = [&] {
    const Memory m = staged.memory();
    return (m.parameters + m.gradients + m.states) / elements;
  };
  EXPECT_DOUBLE_EQ(bytes(), 18);
  staged.set_zero(1);
  EXPECT_DOUBLE_EQ(bytes(), 6 + 12 / 8.0);
}

TEST(Memory, RanksHoldTheParametersOfTheModel) {
  const Model m = load_model("telechat3-438b");
  double whole = 0, embedding = 0, experts = 0;
  for (const Parameter& p : parameters(m)) {
    whole += static_cast<double>(p.size);
    if (p.name == "model.embed_tokens.weight") embedding = static_cast<double>(p.size);
    if (p.name.find("experts.*") != std::string::npos) experts += static_cast<double>(p.size);
  }
  Blocks blocks(training_of(m, 64, 4096));
  const auto held = [&](const char* parallel) {
    const StagedModel staged(blocks, parse_parallel(parallel));
    double sum = 0;
    for (std::int64_t r = 0; r < staged.parallel().pp; ++r) sum += staged.memory(r).parameters / 2;
    return sum / mega;
  };
  EXPECT_DOUBLE_EQ(held(""), whole / mega);
  EXPECT_DOUBLE_EQ(held("pp=8"), (whole + embedding) / mega);  // multi-token prediction has it, too
  EXPECT_DOUBLE_EQ(held("dp=16,ep=16"), (whole - experts + experts / 16) / mega);
}

// Narayanan 2021 (arXiv 2104.04473), eq. 3 without recomputation, of which a third is forward: 24 B s l h^2
// (1 + s / 6h + V / 12lh), here with half of the scores (causal). A SwiGLU of 8h/3 has the matmuls of a GELU.
TEST(Cost, OperationsAreThoseOfThePublishedFormula) {
  const double l = 3, h = 96, s = 32, v = 512;
  Training t = training_of(dense_model(3, 96, 256, 512), 1);
  Blocks blocks(t);
  const double flops = 3 * blocks.layer(Parallel(), false).flops + blocks.head(Parallel()).flops;
  EXPECT_DOUBLE_EQ(flops, 24 * s * l * h * h * (1 + s / (12 * h) + v / (12 * l * h)));
}

// The same, section 2.2: (p - 1) / m of the time of a device that never waits, interleaved (p - 1) / (v m).
TEST(Cost, BubblesAreThoseOfThePublishedFormula) {
  Training t = training_of(dense_model(16, 256, 1024, 2), 16);  // a vocabulary of 2 costs nothing
  t.devices.in_node = t.devices.between_nodes = std::numeric_limits<double>::infinity();
  Blocks blocks(t);
  const auto bubble = [&](const char* parallel) {
    const Cost c = StagedModel(blocks, parse_parallel(parallel)).cost();
    return c.bubble / c.compute;
  };
  EXPECT_NEAR(bubble("pp=4"), 3 / 16.0, 1e-3);
  EXPECT_NEAR(bubble("pp=4,vpp=2,schedule=interleaved"), 3 / 32.0, 1e-3);
  EXPECT_NEAR(bubble(""), 0, 1e-9);
  EXPECT_LT(bubble("pp=4,schedule=zero-bubble"), bubble("pp=4"));
}

TEST(Cost, FullRecomputationIsAThirdMore) {
  Blocks blocks(training_of(dense_model(16, 256, 1024, 2), 16));
  const Cost c = StagedModel(blocks, parse_parallel("recompute=full")).cost();
  EXPECT_NEAR(c.again / c.compute, 1 / 3.0, 1e-3);
}

TEST(Enumeration, TheFastestThatFitAreFoundInOrder) {
  const Training t = training_of(load_model("telechat3-105b-tiny"), 16, 16);
  Blocks blocks(t);
  const Enumeration all = enumerate(blocks, 8, mega * 8, std::numeric_limits<std::size_t>::max());
  EXPECT_LT(all.fitting, all.valid);
  ASSERT_EQ(static_cast<std::int64_t>(all.fastest.size()), all.fitting);
  for (const Candidate& c : all.fastest) {
    EXPECT_LE(c.memory.all(), mega * 8);
    EXPECT_EQ(c.parallel.ranks(), 8);
    EXPECT_LE(StagedModel(blocks, c.parallel).least_seconds(), c.cost.all * (1 + 1e-12));
  }
  const Enumeration some = enumerate(blocks, 8, mega * 8, 5);
  ASSERT_EQ(some.fastest.size(), 5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(some.fastest[i].cost.all, all.fastest[i].cost.all);
}

TEST(Enumeration, WhatIsNotForTheModelIsRefused) {
  Blocks blocks(training_of(load_model("telechat3-105b-tiny"), 6, 16));
  const auto staged = [&](const char* parallel) {
    return [&blocks, parallel] { StagedModel(blocks, parse_parallel(parallel)); };
  };
  EXPECT_THAT(staged("tp=3"), ThrowsMessage<Error>(HasSubstr("attention heads do not divide")));
  EXPECT_THAT(staged("dp=4"),
              ThrowsMessage<Error>(HasSubstr("6 sequences of a step do not divide over dp 4")));
  EXPECT_THAT(staged("pp=8"), ThrowsMessage<Error>(HasSubstr("4 layers do not give 8 stages")));
}

}  // namespace
}  // namespace assay::align::planning_test
