// Plans: memory and cost against published formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <random>

#include "assay/align/forward/architecture.h"
#include "assay/align/ladder/plan_file.h"
#include "assay/align/planning/balance.h"
#include "assay/align/planning/cover.h"
#include "assay/align/planning/enumerate.h"
#include "assay/align/planning/integer_program.h"
#include "assay/golden/error.h"

namespace assay::align::planning_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::ThrowsMessage;

constexpr double mega = 1e6, gibi = 1 << 30;

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
  Blocks blocks(training_of(load_model("telechat3-105b"), 64, 4096));
  const double memory = 60 * gibi;
  const Enumeration all = enumerate(blocks, 64, memory, std::numeric_limits<std::size_t>::max());
  EXPECT_LT(all.fitting, all.valid);
  ASSERT_EQ(static_cast<std::int64_t>(all.fastest.size()), all.fitting);
  for (const Candidate& c : all.fastest) {
    EXPECT_LE(c.memory.all(), memory);
    EXPECT_EQ(c.parallel.ranks(), 64);
    EXPECT_LE(StagedModel(blocks, c.parallel).least_seconds(), c.cost.all * (1 + 1e-12));
  }
  const Enumeration some = enumerate(blocks, 64, memory, 20);
  ASSERT_EQ(some.fastest.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(some.fastest[i].cost.all, all.fastest[i].cost.all);
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

TEST(IntegerProgram, TheCheapestIsThatOfAllThereAre) {
  std::mt19937 random(1);
  const auto draw = [&](int least, int most) {
    return static_cast<double>(std::uniform_int_distribution<int>(least, most)(random));
  };
  for (int round = 0; round < 50; ++round) {
    constexpr int variables = 4, rows = 3, most = 3;
    IntegerProgram program;
    double cost[variables], coefficients[rows][variables], least[rows];
    for (double& c : cost) program.add_integer(0, most, c = draw(1, 9));
    for (int r = 0; r < rows; ++r) {
      IntegerProgram::Terms terms;
      for (int v = 0; v < variables; ++v) terms.emplace_back(v, coefficients[r][v] = draw(-3, 5));
      program.add_row(least[r] = draw(0, 20), terms, std::numeric_limits<double>::infinity());
    }
    double cheapest = std::numeric_limits<double>::infinity();
    for (int code = 0; code < 256; ++code) {
      double all = 0, sums[rows] = {};
      for (int v = 0, rest = code; v < variables; ++v, rest /= most + 1) {
        all += cost[v] * (rest % (most + 1));
        for (int r = 0; r < rows; ++r) sums[r] += coefficients[r][v] * (rest % (most + 1));
      }
      bool is_allowed = true;
      for (int r = 0; r < rows; ++r) is_allowed &= sums[r] >= least[r];
      if (is_allowed) cheapest = std::min(cheapest, all);
    }
    const auto solution = program.solve(0, 1000);
    EXPECT_EQ(solution.has_value(), std::isfinite(cheapest)) << round;
    const double found = solution ? solution->cost : std::numeric_limits<double>::infinity();
    EXPECT_DOUBLE_EQ(found, cheapest) << round;
    EXPECT_TRUE(!solution || solution->gap == 0) << round;
  }
}

// TeleChat3-MoE report (arXiv 2512.24157), section 5: 438B in 8 stages, 2 interleaved, 64 micro-batches, 45
// GB.
TEST(Balance, The438BOfTheReportFitsAndIsFasterThanAnyUniformCut) {
  Blocks blocks(training_of(load_model("telechat3-438b"), 64 * 16, 4096));
  const std::string parallel = "tp=4,sp=1,dp=16,zero=1,pp=8,vpp=2,schedule=interleaved,ep=16";
  const double memory = 45 * gibi;
  const auto balanced = balance(blocks, parse_parallel(parallel), memory);
  ASSERT_TRUE(balanced.has_value());
  EXPECT_LE(balanced->memory.all(), memory);
  std::int64_t layers = 0;
  for (const StageLayers& stage : balanced->stages) {
    for (const auto& kind : stage) layers = std::accumulate(kind.begin(), kind.end(), layers);
  }
  EXPECT_EQ(layers, 54);
  std::int64_t uniform_ones = 0;
  for (const char* recompute : {"none", "full", "mla", "permute", "activation"}) {
    const StagedModel uniform(blocks, parse_parallel(parallel + ",recompute=" + recompute));
    if (!(uniform.memory().all() <= memory)) continue;
    ++uniform_ones;
    EXPECT_LT(balanced->cost.all, uniform.cost().all) << recompute;
  }
  EXPECT_GE(uniform_ones, 1);
}

// Of a small model all cuts there are, by the simulated step.
TEST(Balance, NoOtherCutIsMuchFaster) {
  Training t = training_of(load_model("telechat3-105b,layers=4,losses.mtp_depth=0"), 16, 4096);
  Blocks blocks(t);
  const Parallel p = parse_parallel("tp=8,sp=1,pp=2");
  const double none = StagedModel(blocks, p).memory().all(),
               full = StagedModel(blocks, parse_parallel("tp=8,sp=1,pp=2,recompute=full")).memory().all();
  const double memory = (none + full) / 2;
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t first = 1; first <= 3; ++first) {
    for (int code = 0; code < 625; ++code) {
      std::vector<StageLayers> stages(2);
      for (int layer = 0, rest = code; layer < 4; ++layer, rest /= 5)
        ++stages[layer < first ? 0 : 1][layer == 0 ? 0 : 1][static_cast<std::size_t>(rest % 5)];
      Parallel cut = p;
      cut.stages = {first, 4 - first};
      const StagedModel staged(blocks, cut, stages);
      if (staged.memory().all() <= memory) best = std::min(best, staged.cost().all);
    }
  }
  const auto balanced = balance(blocks, p, memory);
  ASSERT_TRUE(balanced.has_value());
  EXPECT_LE(balanced->memory.all(), memory);
  EXPECT_LE(balanced->cost.all, 1.02 * best);  // of that, a hundredth is the gap of the search
}

TEST(Balance, NothingIsFoundWhereNothingFits) {
  Blocks blocks(training_of(load_model("telechat3-438b"), 64, 4096));
  EXPECT_FALSE(balance(blocks, parse_parallel("pp=8"), 45 * gibi).has_value());
}

std::vector<Parallel> strategies_of(const std::vector<const char*>& texts) {
  std::vector<Parallel> all;
  for (const char* text : texts) all.push_back(parse_parallel(text));
  return all;
}

const Work tiny = {.model = "telechat3-438b-tiny"};

std::set<std::string> names_of(const std::set<Path>& paths) {
  std::set<std::string> names;
  for (const Path& path : paths) names.insert(path.name);
  return names;
}

TEST(Cover, StagesOf16RanksHaveAllThatTheFastestStrategiesOf4096DevicesUse) {
  const Training t = training_of(load_model("telechat3-438b"), 4096, 4096);
  Blocks blocks(t);
  std::vector<Parallel> used;
  for (const Candidate& c : enumerate(blocks, 4096, 60 * gibi, 8).fastest) used.push_back(c.parallel);
  ASSERT_EQ(used.size(), 8u);
  const Cover c = cover(t, used, tiny, {});
  EXPECT_THAT(c.missing, IsEmpty());
  EXPECT_TRUE(c.is_smallest);
  EXPECT_LE(c.rungs.size(), 40u);
  std::set<std::string> exercised = {"more steps", "more sequences", "more layers"};  // by the larger stages
  for (const Rung& r : c.rungs) {
    EXPECT_LE(r.parallel.ranks(), 16) << r.name;
    EXPECT_EQ(objection(r.work, r.parallel), "") << r.name;
    exercised.merge(names_of(paths_of(load_model(r.work.model), r.work, r.parallel)));
  }
  for (const Path& path : c.paths) EXPECT_TRUE(exercised.contains(path.name)) << path.name;
  for (const char* pair :
       {"tp with ep=hierarchical", "sp with zero=1", "schedule=dualpipe with recompute=activation"})
    EXPECT_THAT(names_of(c.paths), Contains(pair));
}

TEST(Cover, StagesAreAsManyAsExcludeEachOther) {
  const Training t = training_of(load_model("telechat3-438b"), 64, 4096);
  // The first has no pair that the third has not.
  const std::vector<Parallel> used = strategies_of(
      {"tp=8,sp=1,dp=2,ep=2", "tp=8,sp=1,dp=2,ep=2,dispatch=allgather", "tp=8,sp=1,dp=2,zero=2,ep=2"});
  const Cover c = cover(t, used, tiny, {});
  const auto together = std::ranges::count_if(
      c.rungs, [](const Rung& r) { return r.parallel.tp > 1 && r.parallel.sp && r.parallel.ep > 1; });
  EXPECT_EQ(together, 2);
  EXPECT_THAT(names_of(c.paths), IsSupersetOf({"zero=2 with ep=alltoall", "dp with ep=allgather"}));
}

TEST(Cover, AChangeYieldsTheStagesThatItTouches) {
  const Training t = training_of(load_model("telechat3-438b"), 64, 4096);
  const std::vector<Parallel> used = strategies_of({"tp=8,sp=1,dp=2,zero=1,pp=4,recompute=full"});
  const Cover all = cover(t, used, tiny, {}), of_pp = cover(t, used, tiny, changed_parts("pp=4:pp=2"));
  EXPECT_LT(of_pp.rungs.size(), all.rungs.size());
  EXPECT_THAT(of_pp.missing, IsEmpty());
  for (const Rung& r : of_pp.rungs) EXPECT_TRUE(r.parallel.pp > 1 || r.parallel == Parallel()) << r.name;
  for (const Path& path : of_pp.paths)
    EXPECT_TRUE(path.parts.empty() || path.parts.contains("pp")) << path.name;
  EXPECT_THAT(changed_parts("tp=4,sp=1:tp=8"), ElementsAre("sp", "tp"));
}

TEST(Cover, WhatChangesNothingIsRefused) {
  const Training t = training_of(load_model("telechat3-438b"), 64, 4096);
  EXPECT_THAT([] { changed_parts("tp=4"); }, ThrowsMessage<Error>(HasSubstr("has no ':'; expected")));
  EXPECT_THAT([] { changed_parts("tp=4:tp=4"); }, ThrowsMessage<Error>(HasSubstr("changes nothing")));
  EXPECT_THAT([&] { cover(t, strategies_of({"tp=8"}), tiny, changed_parts("cp=2:cp=4")); },
              ThrowsMessage<Error>(HasSubstr("none of the 1 strategies uses cp")));
}

TEST(Cover, APlanIsReadAsItWasWritten) {
  const Training t = training_of(load_model("telechat3-438b"), 64, 4096);
  const Cover c = cover(t, strategies_of({"tp=8,sp=1,dp=2,zero=1,pp=4,ep=16,recompute=full"}), tiny, {});
  const std::string file = testing::TempDir() + "/planning_test_plan.toml";
  std::ofstream(file) << to_toml(tiny, c.rungs, "two\nlines");
  const PlanFile read = load_plan(file);
  ASSERT_EQ(read.rungs.size(), c.rungs.size());
  for (std::size_t i = 0; i < c.rungs.size(); ++i) {
    EXPECT_EQ(read.rungs[i].name, c.rungs[i].name);
    EXPECT_EQ(read.rungs[i].parallel, c.rungs[i].parallel);
    EXPECT_EQ(read.rungs[i].work, c.rungs[i].work);
  }
}

TEST(Cover, SmallModelsKeepTheirKinds) {
  EXPECT_EQ(small_model("telechat3-438b"), "telechat3-438b-tiny");
  EXPECT_EQ(small_model("telechat3-438b-tiny"), "telechat3-438b-tiny");
  const std::string given = ASSAY_TEST_DATA "/models/latent.toml";
  EXPECT_EQ(small_model(std::filesystem::relative(given).string() + ",layers=2"),
            std::filesystem::absolute(std::filesystem::relative(given)).string() + ",layers=2");
  for (const char* name : {"deepseek-v3", "qwen3-moe", "pangu-ultra-moe"}) {
    // As a model that has no preset for stages.
    const std::string file = testing::TempDir() + "/planning_test_model.toml";
    const Model whole = load_model(name);
    std::ofstream(file) << to_toml(whole);
    const Model small = load_model(small_model(file));
    EXPECT_LE(small.hidden, 64) << name;
    EXPECT_EQ(small.attention.kind, whole.attention.kind) << name;
    EXPECT_EQ(small.attention.qk_norm, whole.attention.qk_norm) << name;
    EXPECT_EQ(small.moe.groups, whole.moe.groups) << name;
    EXPECT_EQ(small.moe.score, whole.moe.score) << name;
    EXPECT_EQ(objection({.model = small_model(file)}, parse_parallel("tp=2,sp=1,dp=2,ep=4,pp=2")), "")
        << name;
  }
}

}  // namespace
}  // namespace assay::align::planning_test
