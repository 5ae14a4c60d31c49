#include "assay/compare/causes/optimizer/optimizer_faults.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "assay/compare/diff.h"
#include "optimizer_run.h"

namespace assay {
namespace {

using testing::HasSubstr;
using Optimizer = OptimizerUnderTest;

constexpr Recipe recipes[] = {Recipe::fp64, Recipe::fp32, Recipe::bf16};

Report diff_steps(const MemoryDump& actual, const MemoryDump& reference) {
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  return diff(actual, reference, options);
}

struct Fault {
  std::string name;
  Optimizer actual;
  std::string kind;
  std::vector<std::string> text;  // all in the one diagnosis
  Optimizer reference = {};
  double gradients = 1;
};

std::vector<Diagnosis> diagnoses_of(const Report& report) {
  std::vector<Diagnosis> all;
  for (const Finding& f : report.findings) {
    for (const Diagnosis& d : f.diagnoses) all.push_back(d);
  }
  return all;
}

std::int64_t roots_of(const Report& report) {
  return std::ranges::count_if(report.findings, [](const Finding& f) {
    return f.verdict != Verdict::passed && f.verdict != Verdict::inherited;
  });
}

// One root that names it, and nothing else that is not inherited from it, in two or three steps.
void expect_named(const Fault& fault, const std::vector<int>& step_counts = {1, 2, 3}) {
  for (const Recipe recipe : recipes) {
    for (const int steps : step_counts) {
      const std::string what =
          fmt::format("{}, recipe {}, {} steps", fault.name, static_cast<int>(recipe), steps);
      MemoryDump actual{"actual"}, reference{"reference"};
      record_steps(actual, fault.actual, recipe, steps, fault.gradients);
      record_steps(reference, fault.reference, recipe, steps, fault.gradients);
      const Report report = diff_steps(actual, reference);
      const std::vector<Diagnosis> found = diagnoses_of(report);
      ASSERT_FALSE(found.empty()) << what;
      EXPECT_EQ(found.size(), 1U) << what << ": " << found.back().kind << ": " << found.back().text;
      EXPECT_EQ(found.front().kind, fault.kind) << what << ": " << found.front().text;
      for (const std::string& text : fault.text) EXPECT_THAT(found.front().text, HasSubstr(text)) << what;
      EXPECT_EQ(roots_of(report), 1) << what;
    }
  }
}

Optimizer with(const std::function<void(Optimizer&)>& change) {
  Optimizer o;
  change(o);
  return o;
}

double total(const std::map<std::string, double>& squares) {
  double sum = 0;
  for (const auto& [name, square] : squares) sum += square;
  return sum;
}

bool is_expert(const std::string& name) {
  return name.find("experts") != std::string::npos;
}

// min(1, 1 / (norm + 1e-6)) of a norm that is made of squares.
std::function<double(const std::string&, const std::map<std::string, double>&)> clip_by(
    const std::function<double(const std::string&, const std::map<std::string, double>&)>& square) {
  return [=](const std::string& name, const std::map<std::string, double>& squares) {
    return std::min(1., 1 / (std::sqrt(square(name, squares)) + 1e-6));
  };
}

TEST(OptimizerFaults, WeightDecayOfVectors) {
  expect_named({"decay of all",
                with([](Optimizer& o) { o.decay_of = [](auto&, auto&) { return 0.1; }; }),
                "weight_decay",
                {"weight decay 0.1 where the reference has none; the 1-D parameters (3 of 10"}});
}

TEST(OptimizerFaults, WeightDecayOfOneKindOfModule) {
  expect_named({"decay of one class",
                with([](Optimizer& o) {
                  o.decay_of = [](const std::string& name, const Shape& shape) {
                    return shape.size() > 1 || name.ends_with("input_layernorm") ? 0.1 : 0;
                  };
                }),
                "weight_decay",
                {"weight decay 0.1 where the reference has none; all input_layernorm (2 of 10"}});
}

TEST(OptimizerFaults, NoWeightDecay) {
  expect_named({"no decay",
                with([](Optimizer& o) { o.decay = 0; }),
                "weight_decay",
                {"weight decay is missing: the reference has 0.1; the matrices (7 of 10"}});
}

TEST(OptimizerFaults, AnotherWeightDecay) {
  expect_named({"decay 0.03",
                with([](Optimizer& o) { o.decay = 0.03; }),
                "weight_decay",
                {"weight decay is 0.03, the reference's 0.1; the matrices"}});
}

TEST(OptimizerFaults, DecayInTheGradient) {
  expect_named(
      {"L2",
       with([](Optimizer& o) { o.l2 = true; }),
       "l2_decay",
       {"weight decay 0.1 is added to the gradient (L2), where the reference takes it from the parameter"}});
}

TEST(OptimizerFaults, DecayNotInTheGradient) {
  expect_named({"decoupled",
                {},
                "l2_decay",
                {"weight decay 0.1 is taken from the parameter, where the reference adds it to the gradient"},
                with([](Optimizer& o) { o.l2 = true; })});
}

TEST(OptimizerFaults, NoBiasCorrection) {
  expect_named({"no correction",
                with([](Optimizer& o) { o.corrects = false; }),
                "bias_correction",
                {"the moments' bias is not corrected", "0.4472 of the right one", "all 10 parameters"}});
}

TEST(OptimizerFaults, NoBiasCorrectionAndItsEpsilon) {
  expect_named({"mindspore",
                with([](Optimizer& o) {
                  o.corrects = false;
                  o.eps = 1e-6;
                }),
                "bias_correction",
                {"0.4472 of the right one; and epsilon is 1e-06"}});
}

TEST(OptimizerFaults, StepCountOneOff) {
  expect_named({"t + 1",
                with([](Optimizer& o) { o.first_step = 2; }),
                "bias_correction",
                {"the moments' bias is corrected as at step 2, where this is step 1"}});
}

TEST(OptimizerFaults, AnotherEpsilon) {
  expect_named({"eps",
                with([](Optimizer& o) { o.eps = 1e-6; }),
                "epsilon",
                {"epsilon is 1e-06, the reference's 1e-08; all 10"}});
}

TEST(OptimizerFaults, EpsilonBeforeTheCorrection) {
  expect_named({"hat",
                with([](Optimizer& o) {
                  o.hat = true;
                  o.eps = 1e-6;
                }),
                "epsilon",
                {"epsilon 1e-06 joins the root before its bias is corrected (\"epsilon hat\")"},
                with([](Optimizer& o) { o.eps = 1e-6; })});
}

TEST(OptimizerFaults, EpsilonInsideOfTheRoot) {
  expect_named({"inside",
                with([](Optimizer& o) { o.inside = true; }),
                "epsilon",
                {"epsilon 1e-08 stands inside of the root"}});
}

TEST(OptimizerFaults, AnotherBeta1) {
  expect_named({"beta1",
                with([](Optimizer& o) { o.beta1 = 0.95; }),
                "betas",
                {"beta1 is 0.95, the reference's 0.9; all 10"}});
}

TEST(OptimizerFaults, AnotherBeta2) {
  expect_named({"beta2",
                with([](Optimizer& o) { o.beta2 = 0.99; }),
                "betas",
                {"beta2 is 0.99, the reference's 0.95; all 10"}});
}

TEST(OptimizerFaults, AnotherLearningRate) {
  expect_named({"lr",
                with([](Optimizer& o) { o.lr = 1.3e-3; }),
                "learning_rate",
                {"the learning rate is 0.0013, the reference's 0.001 (1.3 times); all 10"}});
}

TEST(OptimizerFaults, TheOtherSignOfTheGradient) {
  expect_named(
      {"sign", with([](Optimizer& o) { o.sign = -1; }), "sign", {"the gradient enters with the other sign"}});
}

TEST(OptimizerFaults, NoClipping) {
  expect_named({"no clip",
                with([](Optimizer& o) { o.max_norm = HUGE_VAL; }),
                "clip",
                {"gradients are multiplied by 1, not by 0.", "they are not clipped; all 10"}});
}

TEST(OptimizerFaults, AnotherMaxNorm) {
  expect_named({"max_norm",
                with([](Optimizer& o) { o.max_norm = 0.5; }),
                "clip",
                {"max_norm is 0.5, the reference's 1; all 10"}});
}

TEST(OptimizerFaults, ClippedThoughBelow) {
  expect_named({"scaled up",
                with([](Optimizer& o) {
                  o.clip = [](const std::string&, const auto& squares) {
                    return 1 / (std::sqrt(total(squares)) + 1e-6);
                  };
                }),
                "clip",
                {"max_norm 1 / norm", "though the norm is below it; all 10"},
                {},
                0.01});
}

TEST(OptimizerFaults, NormCountedTwice) {
  expect_named({"sqrt(2)",
                with([](Optimizer& o) {
                  o.clip =
                      clip_by([](const std::string&, const auto& squares) { return 2 * total(squares); });
                }),
                "clip",
                {"sqrt(2) times the norm: every gradient is counted 2 times"}});
}

TEST(OptimizerFaults, ExpertsCountedTwiceInTheNorm) {
  expect_named({"experts twice",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string&, const auto& squares) {
                    double sum = total(squares);
                    for (const auto& [name, square] : squares) sum += is_expert(name) ? square : 0;
                    return sum;
                  });
                }),
                "clip",
                {"model.layers.1.mlp.experts.*.up_proj.weight counted 2 times"}});
}

TEST(OptimizerFaults, VectorsMissingInTheNorm) {
  expect_named({"without vectors",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string&, const auto& squares) {
                    double sum = 0;
                    for (const auto& [name, square] : squares)
                      sum += parameters_under_test().at(name).size() > 1 ? square : 0;
                    return sum;
                  });
                }),
                "clip",
                {"without the 1-D parameters"}});
}

TEST(OptimizerFaults, EmbeddingCountedTwiceInTheRecordedNorm) {
  expect_named({"norm",
                with([](Optimizer& o) {
                  o.norm = [](double norm, const auto& squares) {
                    return std::sqrt(norm * norm + squares.at("model.embed_tokens"));
                  };
                }),
                "norm",
                {"that of the recorded gradients", "model.embed_tokens.weight counted 2 times"}});
}

TEST(OptimizerFaults, GroupsClippedByTheirOwnNorms) {
  expect_named({"own norms",
                with([](Optimizer& o) {
                  o.clip = clip_by([](const std::string& own, const auto& squares) {
                    double sum = 0;
                    for (const auto& [name, square] : squares)
                      sum += is_expert(name) == is_expert(own) ? square : 0;
                    return sum;
                  });
                }),
                "clip",
                {"clipped by the norms of groups, not by that of all"}});
}

TEST(OptimizerFaults, NotUpdated) {
  expect_named(
      {"old",
       with([](Optimizer& o) {
         o.after = [](const std::string& name, std::int64_t, const Values& before, Values& after, Values&,
                      Values&) {
           if (is_expert(name)) after = before;
         };
       }),
       "not_updated",
       {"the parameter is not updated: it is what it was before the step; model.layers.1.mlp.experts"}});
}

TEST(OptimizerFaults, ShardNotGathered) {
  expect_named({"part",
                with([](Optimizer& o) {
                  o.after = [](const std::string&, std::int64_t, const Values& before, Values& after, Values&,
                               Values&) {
                    const auto half = static_cast<std::ptrdiff_t>(after.size() / 2);
                    std::copy(before.begin() + half, before.end(), after.begin() + half);
                  };
                }),
                "not_updated",
                {"(part 1 of 2): they are what they were before the step; all 10"}});
}

TEST(OptimizerFaults, UpdateAppliedTwice) {
  expect_named({"twice",
                with([](Optimizer& o) { o.update_times = 2; }),
                "not_updated",
                {"the update is applied twice; all 10"}});
}

TEST(OptimizerFaults, StepTakenTwice) {
  expect_named(
      {"all twice", with([](Optimizer& o) { o.times = 2; }), "not_updated", {"the step is taken twice"}});
}

TEST(OptimizerFaults, StepCountLost) {
  expect_named({"t = 1",
                with([](Optimizer& o) { o.counts_from_one = true; }),
                "bias_correction",
                {"the moments' bias is corrected as at step 1, where this is step 2; all 10"}},
               {2, 3});
}

TEST(OptimizerFaults, MomentsLost) {
  expect_named({"m = 0",
                with([](Optimizer& o) {
                  o.before = [](const std::string&, std::int64_t, Values& m, Values&) {
                    std::ranges::fill(m, 0);
                  };
                }),
                "stale",
                {"exp_avg starts from zero at this step: what it was before is lost; all 10"}},
               {2, 3});
}

TEST(OptimizerFaults, SecondMomentLost) {
  expect_named({"v = 0",
                with([](Optimizer& o) {
                  o.before = [](const std::string&, std::int64_t, Values&, Values& v) {
                    std::ranges::fill(v, 0);
                  };
                }),
                "stale",
                {"exp_avg_sq starts from zero at this step: what it was before is lost; all 10"}},
               {2, 3});
}

TEST(OptimizerFaults, MomentNotUpdated) {
  expect_named({"old v",
                with([](Optimizer& o) {
                  o.keeps_second = [](const std::string& name, std::int64_t step) {
                    return name == "lm_head" && step > 0;
                  };
                }),
                "not_updated",
                {"exp_avg_sq is not updated: it is what it was before the step; lm_head.weight"}},
               {2, 3});
}

TEST(OptimizerFaults, GradientOfTheStepBefore) {
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
         "stale",
         {adds ? "to the gradient that is used the gradient of the step before is added; all 10"
               : "the gradient that is used is the gradient of the step before, not the reduced one"}},
        {2, 3});
  }
}

// Shares of two ranks were recorded beside their sum.
TEST(OptimizerFaults, GradientOfOneRank) {
  expect_named(
      {"one share",
       with([](Optimizer& o) {
         o.shares = 2;
         o.gradient = [](const std::string&, std::int64_t, const Values& g) { return share_of(g, 1); };
       }),
       "stale",
       {"the gradient that is used is the share of rank 1 alone, not the reduced one of this step; all 10"},
       with([](Optimizer& o) { o.shares = 2; })});
}

TEST(OptimizerFaults, DecayOfAllInTheGradient) {
  expect_named({"L2 of vectors",
                with([](Optimizer& o) {
                  o.l2 = true;
                  o.decay_of = [](auto&, const Shape& shape) { return shape.size() == 1 ? 0.1 : 0; };
                }),
                "l2_decay",
                {"weight decay 0.1 is added to the gradient (L2); the reference adds none; the 1-D"},
                with([](Optimizer& o) { o.decay = 0; })});
}

TEST(OptimizerFaults, TheOtherSignOfTheUpdate) {
  expect_named({"ascent",
                with([](Optimizer& o) { o.update_sign = -1; }),
                "sign",
                {"the update has the other sign; all 10"}});
}

// What other frameworks do rightly, other arithmetic and wrong gradients are no faults of an optimizer.
TEST(OptimizerFaults, CleanRunsHaveNone) {
  const Optimizer others[] = {
      {},
      with([](Optimizer& o) {  // MindFormers: no 1e-6
        o.clip = [](const std::string&, const auto& squares) {
          return std::min(1., 1 / std::sqrt(total(squares)));
        };
      }),
  };
  for (const Optimizer& o : others) {
    for (const Recipe a : recipes) {
      for (const Recipe b : recipes) {
        MemoryDump actual{"actual"}, reference{"reference"};
        record_steps(actual, o, a, 3);
        record_steps(reference, {}, b, 3);
        for (const Diagnosis& d : diagnoses_of(diff_steps(actual, reference)))
          EXPECT_FALSE(is_of_optimizer(d)) << static_cast<int>(a) << static_cast<int>(b) << d.text;
      }
    }
  }
}

TEST(OptimizerFaults, AWrongGradientIsNoFaultOfTheOptimizer) {
  for (const Recipe recipe : recipes) {
    MemoryDump actual{"actual"}, reference{"reference"};
    record_steps(actual, with([](Optimizer& o) { o.recorded_gradient = 3; }), recipe, 3);
    record_steps(reference, {}, recipe, 3);
    const Report report = diff_steps(actual, reference);
    EXPECT_NE(report.first_failure(), nullptr);
    for (const Finding& f : report.findings) {
      const bool follows = f.verdict == Verdict::passed || f.verdict == Verdict::inherited;
      EXPECT_TRUE(f.id.phase != Phase::optimizer || follows) << f.name;
      for (const Diagnosis& d : f.diagnoses) EXPECT_FALSE(is_of_optimizer(d)) << d.text;
    }
  }
}

TEST(OptimizerFaults, GradientOfAnotherParameter) {
  expect_named({"other gradient",
                with([](Optimizer& o) {
                  auto seen = std::make_shared<std::map<std::int64_t, Values>>();
                  o.gradient = [seen](const std::string& name, std::int64_t step, const Values& g) {
                    if (name == "model.layers.0.self_attn.q_proj") (*seen)[step] = g;
                    return name == "model.layers.1.self_attn.q_proj" ? (*seen)[step] : g;
                  };
                }),
                "stale",
                {"the gradient that is used is the gradient of model.layers.0.self_attn.q_proj"}});
}

}  // namespace
}  // namespace assay
