// A step with other numbers or another rule than the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "optimizer_fault.h"

namespace assay::optimizer_faults_test {
namespace {

using Optimizer = OptimizerUnderTest;

TEST(OptimizerFaults, WeightDecayOfVectors) {
  expect_named({"decay of all",
                with([](Optimizer& o) { o.decay_of = [](auto&, auto&) { return 0.1; }; }),
                Cause::weight_decay,
                {"weight decay 0.1 where the reference has none; the 1-D parameters (3 of 10"}});
}

TEST(OptimizerFaults, WeightDecayOfOneKindOfModule) {
  expect_named({"decay of one class",
                with([](Optimizer& o) {
                  o.decay_of = [](const std::string& name, const Shape& shape) {
                    return shape.size() > 1 || name.ends_with("input_layernorm") ? 0.1 : 0;
                  };
                }),
                Cause::weight_decay,
                {"weight decay 0.1 where the reference has none; all input_layernorm (2 of 10"}});
}

TEST(OptimizerFaults, NoWeightDecay) {
  expect_named({"no decay",
                with([](Optimizer& o) { o.decay = 0; }),
                Cause::weight_decay,
                {"weight decay is missing: the reference has 0.1; the matrices (7 of 10"}});
}

TEST(OptimizerFaults, AnotherWeightDecay) {
  expect_named({"decay 0.03",
                with([](Optimizer& o) { o.decay = 0.03; }),
                Cause::weight_decay,
                {"weight decay is 0.03, the reference's 0.1; the matrices"}});
}

TEST(OptimizerFaults, DecayInTheGradient) {
  expect_named(
      {"L2",
       with([](Optimizer& o) { o.l2 = true; }),
       Cause::l2_decay,
       {"weight decay 0.1 is added to the gradient (L2), where the reference takes it from the parameter"}});
}

TEST(OptimizerFaults, DecayNotInTheGradient) {
  expect_named({"decoupled",
                {},
                Cause::l2_decay,
                {"weight decay 0.1 is taken from the parameter, where the reference adds it to the gradient"},
                with([](Optimizer& o) { o.l2 = true; })});
}

TEST(OptimizerFaults, NoBiasCorrection) {
  expect_named({"no correction",
                with([](Optimizer& o) { o.corrects = false; }),
                Cause::bias_correction,
                {"the moments' bias is not corrected", "all 10 parameters"}});
}

TEST(OptimizerFaults, NoBiasCorrectionAndItsEpsilon) {
  expect_named({"mindspore",
                with([](Optimizer& o) {
                  o.corrects = false;
                  o.eps = 1e-6;
                }),
                Cause::bias_correction,
                {"the moments' bias is not corrected; and epsilon is 1e-06"}});
}

TEST(OptimizerFaults, StepCountOneOff) {
  expect_named({"t + 1",
                with([](Optimizer& o) { o.first_step = 2; }),
                Cause::bias_correction,
                {"the moments' bias is corrected as at step 2, where this is step 1"}});
}

TEST(OptimizerFaults, AnotherEpsilon) {
  expect_named({"eps",
                with([](Optimizer& o) { o.eps = 1e-6; }),
                Cause::epsilon,
                {"epsilon is 1e-06, the reference's 1e-08; all 10"}});
}

TEST(OptimizerFaults, EpsilonBeforeTheCorrection) {
  expect_named({"hat",
                with([](Optimizer& o) {
                  o.hat = true;
                  o.eps = 1e-6;
                }),
                Cause::epsilon,
                {"eps_placement is \"hat\""},
                with([](Optimizer& o) { o.eps = 1e-6; })});
}

TEST(OptimizerFaults, EpsilonInsideOfTheRoot) {
  expect_named({"inside",
                with([](Optimizer& o) { o.inside = true; }),
                Cause::epsilon,
                {"eps_placement is \"inside\""}});
}

TEST(OptimizerFaults, AnotherBeta1) {
  expect_named({"beta1",
                with([](Optimizer& o) { o.beta1 = 0.95; }),
                Cause::betas,
                {"beta1 is 0.95, the reference's 0.9; all 10"}});
}

TEST(OptimizerFaults, AnotherBeta2) {
  expect_named({"beta2",
                with([](Optimizer& o) { o.beta2 = 0.99; }),
                Cause::betas,
                {"beta2 is 0.99, the reference's 0.95; all 10"}});
}

TEST(OptimizerFaults, AnotherLearningRate) {
  expect_named({"lr",
                with([](Optimizer& o) { o.lr = 1.3e-3; }),
                Cause::learning_rate,
                {"the learning rate is 0.0013, the reference's 0.001 (1.3 times); all 10"}});
}

TEST(OptimizerFaults, TheOtherSignOfTheGradient) {
  expect_named({"sign",
                with([](Optimizer& o) { o.sign = -1; }),
                Cause::step_sign,
                {"the gradient enters with the other sign"}});
}

TEST(OptimizerFaults, DecayOfAllInTheGradient) {
  expect_named({"L2 of vectors",
                with([](Optimizer& o) {
                  o.l2 = true;
                  o.decay_of = [](auto&, const Shape& shape) { return shape.size() == 1 ? 0.1 : 0; };
                }),
                Cause::l2_decay,
                {"weight decay 0.1 is added to the gradient (L2); the reference adds none; the 1-D"},
                with([](Optimizer& o) { o.decay = 0; })});
}

TEST(OptimizerFaults, TheOtherSignOfTheUpdate) {
  expect_named({"ascent",
                with([](Optimizer& o) { o.update_sign = -1; }),
                Cause::step_sign,
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
          EXPECT_FALSE(is_of_optimizer(d.cause)) << static_cast<int>(a) << static_cast<int>(b) << sentence(d);
      }
    }
  }
}

// Roundings of a gradient in bfloat16 may hide the decay of a step that has one in every element; a zero
// shows it.
TEST(OptimizerFaults, ADecayThatTheReferenceHidesIsThatOfOtherParameters) {
  const Optimizer narrow = with([](Optimizer& o) { o.narrow = true, o.max_norm = 1e9; });
  MemoryDump actual{"actual"}, reference{"reference"};
  Optimizer zeros = narrow;
  zeros.has_zeros = true;
  record_steps(actual, zeros, Recipe::bf16, 1);
  record_steps(reference, narrow, Recipe::bf16, 1);
  for (const Diagnosis& d : diagnoses_of(diff_steps(actual, reference)))
    EXPECT_FALSE(is_of_optimizer(d.cause)) << sentence(d);
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
      for (const Diagnosis& d : f.diagnoses) EXPECT_FALSE(is_of_optimizer(d.cause)) << sentence(d);
    }
  }
}

}  // namespace
}  // namespace assay::optimizer_faults_test
