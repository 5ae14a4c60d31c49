// Results of a step that are old, were made twice, or were made of the wrong tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "optimizer_fault.h"
#include "recorded_pair.h"

namespace assay::optimizer_stale_test {
namespace {

using Optimizer = OptimizerUnderTest;

TEST(OptimizerStale, NotUpdated) {
  expect_named(
      {"old",
       with([](Optimizer& o) {
         o.after = [](const std::string& name, std::int64_t, const Values& before, Values& after, Values&,
                      Values&) {
           if (is_expert(name)) after = before;
         };
       }),
       Cause::not_updated,
       {"the parameter is not updated: it is what it was before the step; model.layers.1.mlp.experts"}});
}

TEST(OptimizerStale, ShardNotGathered) {
  expect_named({"part",
                with([](Optimizer& o) {
                  o.after = [](const std::string&, std::int64_t, const Values& before, Values& after, Values&,
                               Values&) {
                    const auto half = static_cast<std::ptrdiff_t>(after.size() / 2);
                    std::copy(before.begin() + half, before.end(), after.begin() + half);
                  };
                }),
                Cause::not_updated,
                {"(part 1 of 2): they are what they were before the step; all 10"}});
}

TEST(OptimizerStale, UpdateAppliedTwice) {
  expect_named({"twice",
                with([](Optimizer& o) { o.update_times = 2; }),
                Cause::not_updated,
                {"the update is applied twice; all 10"}});
}

TEST(OptimizerStale, StepTakenTwice) {
  expect_named({"all twice",
                with([](Optimizer& o) { o.times = 2; }),
                Cause::not_updated,
                {"the step is taken twice"}});
}

TEST(OptimizerStale, StepCountLost) {
  expect_named({"t = 1",
                with([](Optimizer& o) { o.counts_from_one = true; }),
                Cause::bias_correction,
                {"the moments' bias is corrected as at step 1, where this is step 2; all 10"}},
               {2, 3});
}

TEST(OptimizerStale, MomentsLost) {
  expect_named({"m = 0",
                with([](Optimizer& o) {
                  o.before = [](const std::string&, std::int64_t, Values& m, Values&) {
                    std::ranges::fill(m, 0);
                  };
                }),
                Cause::step_stale,
                {"exp_avg starts from zero at this step: what it was before is lost; all 10"}},
               {2, 3});
}

TEST(OptimizerStale, SecondMomentLost) {
  expect_named({"v = 0",
                with([](Optimizer& o) {
                  o.before = [](const std::string&, std::int64_t, Values&, Values& v) {
                    std::ranges::fill(v, 0);
                  };
                }),
                Cause::step_stale,
                {"exp_avg_sq starts from zero at this step: what it was before is lost; all 10"}},
               {2, 3});
}

TEST(OptimizerStale, MomentNotUpdated) {
  expect_named({"old v",
                with([](Optimizer& o) {
                  o.keeps_second = [](const std::string& name, std::int64_t step) {
                    return name == "lm_head" && step > 0;
                  };
                }),
                Cause::not_updated,
                {"exp_avg_sq is not updated: it is what it was before the step; lm_head.weight"}},
               {2, 3});
}

TEST(OptimizerStale, GradientOfTheStepBefore) {
  for (const bool adds : {false, true}) {
    expect_named(
        {"old gradient",
         with([adds](Optimizer& o) {
           auto last = std::make_shared<std::map<std::string, Values>>();
           o.gradient = [last, adds](const std::string& name, std::int64_t step, const Values& g) {
             Values used = g;
             if (step > 0) {
               for (std::size_t i = 0; i < g.size(); ++i) used[i] = last->at(name)[i] + (adds ? g[i] : 0);
             }
             (*last)[name] = g;
             return used;
           };
         }),
         Cause::step_stale,
         {adds ? "to the gradient that is used the gradient of the step before is added; all 10"
               : "the gradient that is used is the gradient of the step before, not the reduced one"}},
        {2, 3});
  }
}

// Shares of two ranks were recorded beside their sum.
TEST(OptimizerStale, GradientOfOneRank) {
  expect_named(
      {"one share",
       with([](Optimizer& o) {
         o.shares = 2;
         o.gradient = [](const std::string&, std::int64_t, const Values& g) { return share_of(g, 1); };
       }),
       Cause::step_stale,
       {"the gradient that is used is the share of rank 1 alone, not the reduced one of this step; all 10"},
       with([](Optimizer& o) { o.shares = 2; })});
}

TEST(OptimizerStale, GradientOfAnotherParameter) {
  expect_named({"other gradient",
                with([](Optimizer& o) {
                  auto seen = std::make_shared<std::map<std::int64_t, Values>>();
                  o.gradient = [seen](const std::string& name, std::int64_t step, const Values& g) {
                    if (name == "model.layers.0.self_attn.q_proj") (*seen)[step] = g;
                    return name == "model.layers.1.self_attn.q_proj" ? (*seen)[step] : g;
                  };
                }),
                Cause::step_stale,
                {"the gradient that is used is the gradient of model.layers.0.self_attn.q_proj"}});
}

// The optimizer was not given it: it has no states, and what it should have become is within the tolerance.
TEST(OptimizerStale, AParameterThatWasLeftBehind) {
  const Tensor before = normal_tensor(DType::bfloat16, {8, 16}, 1),
               after = plus(before, 0.01, normal_tensor(DType::bfloat16, {8, 16}, 2));
  const auto diff_with = [&](const Tensor& left) {
    RecordedPair run;
    run.add({0, -1, Phase::forward, "gate", "param", "weight", 0}, before);
    run.add({0, -1, Phase::backward, "gate", "grad", "weight", 0},
            normal_tensor(DType::bfloat16, {8, 16}, 3));
    for (const char* state : {"weight.exp_avg", "weight.exp_avg_sq"})
      run.reference.add({0, -1, Phase::optimizer, "gate", "state", state, 0}, after);
    const Identity id{0, -1, Phase::optimizer, "gate", "param", "weight", 0};
    run.add(id, left, after);
    const Report report = run.diff();
    return *std::ranges::find(report.findings, id, &Finding::id);
  };
  const Finding wrong = diff_with(before);
  EXPECT_EQ(wrong.verdict, Verdict::failed);
  ASSERT_FALSE(wrong.diagnoses.empty());
  EXPECT_EQ(wrong.diagnoses.front().cause, Cause::not_updated);
  EXPECT_EQ(diff_with(plus(before, 0.0099, normal_tensor(DType::bfloat16, {8, 16}, 2))).verdict,
            Verdict::passed);
}

}  // namespace
}  // namespace assay::optimizer_stale_test
