// The loss in which a program ends, which no module makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::program_losses_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// The last values of a model, whose loss should foresee the next token of each place.
// @param masked  places of the actual side, and of the reference, without a target in the later micro-batches
// @param of_reference  of both sides, but where the actual one has its own
auto loss_of(std::int64_t rolled, double weight, std::pair<std::int64_t, std::int64_t> masked = {0, 0},
             const Attributes& of_actual = {}, const Attributes& of_reference = {}, bool is_shifted = true) {
  return [=](MemoryDump& d, bool is_actual) {
    for (const std::int64_t mb : {0, 1, 2, 3}) {
      std::vector<std::int64_t> tokens, targets;
      for (std::int64_t i = 0; i < 24; ++i) tokens.push_back((7 * i + 5 * mb + i * i) % 11);
      for (std::int64_t i = 0; i < 24; ++i) {
        const std::int64_t place = i % 12, by = is_actual ? rolled : 0;
        const auto from = static_cast<std::size_t>(i - place + (place + 1 + by) % 12);
        const bool is_masked = mb * (is_actual ? masked.first : masked.second) > 11 - place;
        targets.push_back(is_actual && !is_shifted   ? tokens[static_cast<std::size_t>(i)]
                          : place == 11 || is_masked ? -100
                                                     : tokens[from]);
      }
      const Tensor logits = normal_tensor(DType::float32, {24, 11}, 31 + static_cast<std::uint64_t>(mb)),
                   grad_y = Tensor::from_values(DType::float32, {}, Values{is_actual ? weight : 0.25});
      const auto made = compute_golden(
          find_operator("cross_entropy"),
          std::vector<NamedTensor>{
              {"logits", logits}, {"target", Tensor::from_indices({24}, targets)}, {"grad_y", grad_y}},
          is_actual && !of_actual.values().empty() ? of_actual : of_reference, Level::fp64);
      const Shape shape = {2, 12, 11};
      d.add({0, mb, f, "embed", "input", "input", 0}, Tensor::from_indices({2, 12}, tokens)).op = "Embedding";
      d.add({0, mb, f, "head", "output", "y", 0}, logits.reshaped(shape));
      d.add({0, mb, f, "loss", "loss", "lm", 0}, single(output_named(made, "loss")));
      d.add({0, mb, b, "head", "grad_output", "y", 0},
            noisy(single(output_named(made, "grad_logits")).reshaped(shape), is_actual ? 3 : 4));
    }
  };
}

TEST(ProgramLosses, TheLossInWhichItEndsIsKnown) {
  const Report right = isolated(loss_of(0, 0.25));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "head", "grad_output").unjudged, "");
  const std::vector<std::string> gradients(4, "head grad_output y");
  EXPECT_EQ(created(isolated(loss_of(0, 0.5))), gradients) << "another share of the loss";
}

// One number proves little, but its gradient has said what it is, and how much of it.
TEST(ProgramLosses, TheLossOfALoneMicroBatchIsJudged) {
  for (const double of_number : {0.25, 1.}) {
    const auto record = [&](double of_actual) {
      return [=](MemoryDump& d, bool is_actual) {
        std::vector<std::int64_t> tokens, targets;
        for (std::int64_t i = 0; i < 24; ++i) tokens.push_back((7 * i + i * i) % 11);
        for (std::int64_t i = 0; i < 24; ++i)
          targets.push_back(i % 12 == 11 ? -100 : tokens[static_cast<std::size_t>(i + 1)]);
        const Tensor logits = normal_tensor(DType::float32, {24, 11}, 31),
                     grad_y = Tensor::from_values(DType::float32, {}, Values{0.25});
        const auto made = compute_golden(
            find_operator("cross_entropy"),
            std::vector<NamedTensor>{
                {"logits", logits}, {"target", Tensor::from_indices({24}, targets)}, {"grad_y", grad_y}},
            {}, Level::fp64);
        const Tensor nothing = Tensor::from_values(DType::float32, {}, Values{0});
        d.add({0, 0, f, "embed", "input", "input", 0}, Tensor::from_indices({2, 12}, tokens)).op =
            "Embedding";
        d.add({0, 0, f, "head", "output", "y", 0}, logits.reshaped({2, 12, 11}));
        d.add({0, 0, f, "loss", "loss", "lm", 0},
              plus(nothing, of_number * (is_actual ? of_actual : 1), output_named(made, "loss")));
        d.add({0, 0, b, "head", "grad_output", "y", 0},
              noisy(single(output_named(made, "grad_logits")).reshaped({2, 12, 11}), is_actual ? 3 : 4));
      };
    };
    const Report right = isolated(record(1 + 1e-7));
    EXPECT_EQ(right.exit_status(), 0) << of_number;
    EXPECT_EQ(finding(right, "loss", "loss").unjudged, "") << of_number;
    EXPECT_EQ(created(isolated(record(1 + 1e-3))), std::vector<std::string>{"loss loss lm"}) << of_number;
  }
}

// A model that adds a balance loss of its router to its own: both are in the number, and their gradients in
// different values.
TEST(ProgramLosses, ALossWithWhatIsAddedToItIsJudgedAsANumber) {
  constexpr double share = 0.25, coefficient = 0.5;
  const auto record = [](double of_actual) {
    return [=](MemoryDump& d, bool is_actual) {
      for (const std::int64_t mb : {0, 1, 2, 3}) {
        const auto seed = static_cast<std::uint64_t>(mb);
        std::vector<std::int64_t> tokens, targets, index;
        for (std::int64_t i = 0; i < 24; ++i) tokens.push_back((7 * i + 5 * mb + i * i) % 11);
        for (std::int64_t i = 0; i < 24; ++i)
          targets.push_back(i % 12 == 11 ? -100 : tokens[static_cast<std::size_t>(i + 1)]);
        for (std::int64_t i = 0; i < 24; ++i) index.insert(index.end(), {i % 3, 3});
        const Tensor logits = normal_tensor(DType::float32, {24, 11}, 31 + seed),
                     scores = normal_tensor(DType::float32, {24, 4}, 41 + seed),
                     back = normal_tensor(DType::float32, {24, 4}, 51 + seed),
                     chosen = Tensor::from_indices({24, 2}, index),
                     one = Tensor::from_values(DType::float32, {}, Values{1});
        const auto loss = compute_golden(
            find_operator("cross_entropy"),
            std::vector<NamedTensor>{
                {"logits", logits}, {"target", Tensor::from_indices({24}, targets)}, {"grad_y", one}},
            {}, Level::fp64);
        const auto balance = compute_golden(find_operator("moe_aux_loss"),
                                            std::vector<NamedTensor>{{"logits", scores}, {"index", chosen}},
                                            {{"top_k", 2}, {"score", "sigmoid"}}, Level::fp64);
        const Tensor nothing = Tensor::from_values(DType::float32, {24, 11}, Values(24 * 11, 0));
        d.add({0, mb, f, "embed", "input", "input", 0}, Tensor::from_indices({2, 12}, tokens)).op =
            "Embedding";
        d.add({0, mb, f, "moe.gate", "output", "y", 0}, scores);
        d.add({0, mb, f, "moe.router", "input", "logits", 0}, scores);
        d.add({0, mb, f, "moe", "output", "index", 0}, chosen);
        d.add({0, mb, f, "head", "output", "y", 0}, logits.reshaped({2, 12, 11}));
        d.add({0, mb, f, "loss", "loss", "lm", 0},
              plus(single(output_named(loss, "loss")), is_actual ? of_actual : coefficient,
                   output_named(balance, "loss")));
        d.add({0, mb, b, "head", "grad_output", "y", 0},
              noisy(plus(nothing, share, output_named(loss, "grad_logits")).reshaped({2, 12, 11}),
                    is_actual ? 3 : 4));
        d.add({0, mb, b, "moe.router", "grad_input", "logits", 0}, back);
        d.add({0, mb, b, "moe.gate", "grad_output", "y", 0},
              plus(back, share * coefficient, output_named(balance, "grad_logits")));
      }
    };
  };
  const Report right = isolated(record(coefficient * (1 + 1e-7)));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(finding(right, "loss", "loss").unjudged, "");
  EXPECT_EQ(created(isolated(record(1.5 * coefficient))), std::vector<std::string>(4, "loss loss lm"));
}

// The gradient of a loss is one round number, which could be any; that of its logits has many.
TEST(ProgramLosses, TheFactorOfALossShowsInWhatFollowsFromIt) {
  const Report report = isolated([](MemoryDump& d, bool is_actual) {
    d.mesh = {{"dp"}, {2}};
    for (const std::int64_t mb : {0, 1}) {
      const Tensor logits = normal_tensor(DType::float32, {16, 9}, 31 + static_cast<std::uint64_t>(mb)),
                   grad_y = Tensor::from_values(DType::float32, {}, Values{is_actual ? 0.5 : 0.25});
      std::vector<std::int64_t> targets;
      for (std::int64_t i = 0; i < 16; ++i) targets.push_back((5 * i + mb) % 9);
      const std::vector<NamedTensor> inputs = {
          {"logits", logits}, {"target", Tensor::from_indices({16}, targets)}, {"grad_y", grad_y}};
      d.add({0, mb, f, "loss", "input", "logits", 0}, logits).op = "cross_entropy";
      d.add({0, mb, f, "loss", "input", "target", 0}, inputs[1].tensor).op = "cross_entropy";
      d.add({0, mb, f, "loss", "output", "y", 0}, output("cross_entropy", inputs, {}, "loss")).op =
          "cross_entropy";
      d.add({0, mb, b, "loss", "grad_output", "y", 0}, grad_y).op = "cross_entropy";
      d.add({0, mb, b, "loss", "grad_input", "logits", 0}, output("cross_entropy", inputs, {}, "grad_logits"))
          .op = "cross_entropy";
    }
  });
  const Finding& root = finding(report, "loss", "grad_output");
  ASSERT_FALSE(root.diagnoses.empty());
  EXPECT_EQ(root.diagnoses.front().cause, Cause::factor);
  EXPECT_EQ(root.diagnoses.front().parameters.factor, 2);
  EXPECT_EQ(root.diagnoses.front().parameters.tensor,
            "loss grad_input logits (step 0, micro-batch 0, backward)");
}

// In a narrow dtype a side may store the log-softmax, and its gradient before the share, where the other
// rounds once.
TEST(ProgramLosses, StepsMayBeStoredByOneSide) {
  constexpr double third = 1.0 / 3;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto record = [=](double share) {
      return [=](MemoryDump& d, bool is_actual) {
        const Tensor logits = Tensor::from_values(DType::bfloat16, {4, 10},
                                                  normal_tensor(DType::float32, {4, 10}, seed).values());
        const Tensor target = Tensor::from_indices({4}, std::vector<std::int64_t>{7, 0, 3, 9});
        Values gradient = output("cross_entropy",
                                 {{"logits", logits},
                                  {"target", target},
                                  {"grad_y", Tensor::from_values(DType::float32, {}, Values{third})}},
                                 {}, "grad_logits")
                              .values();
        for (std::size_t i = 0; i < gradient.size() && is_actual; ++i) {
          const double one = static_cast<double>(i % 10) == target.values()[i / 10] ? 1 : 0;
          const double p = std::exp(round_to(DType::bfloat16, std::log(4 * gradient[i] / third + one)));
          gradient[i] = round_to(DType::bfloat16, share * round_to(DType::bfloat16, (p - one) / 4));
        }
        d.add({0, 0, f, "head", "output", "y", 0}, logits);
        d.add({0, 0, b, "head", "grad_output", "y", 0},
              Tensor::from_values(DType::bfloat16, {4, 10}, gradient));
      };
    };
    const Report right = isolated(record(third));
    EXPECT_EQ(right.exit_status(), 0) << seed;
    EXPECT_EQ(finding(right, "head", "grad_output").unjudged, "") << seed;
    EXPECT_EQ(isolated(record(1.06 * third)).exit_status(), 1) << seed;
  }
}

TEST(ProgramLosses, TheLossLeavesOutPlacesWithoutATarget) {
  const Report right = isolated(loss_of(0, 0.25, {3, 3}));
  EXPECT_EQ(right.exit_status(), 0);
  for (const auto& [module, slot] : {std::pair("loss", "loss"), {"head", "grad_output"}})
    EXPECT_EQ(finding(right, module, slot).unjudged, "") << module;
  EXPECT_EQ(created(isolated(loss_of(0, 0.25, {2, 3}))).size(), 6u)
      << "loss and gradient of three micro-batches";
}

TEST(ProgramLosses, AnotherLossOfTheSameTokensIsNamed) {
  const Report report = isolated(loss_of(0, 0.25, {0, 0}, {{"label_smoothing", 0.1}}));
  for (const auto& [module, slot] : {std::pair("loss", "loss"), {"head", "grad_output"}}) {
    const Finding& wrong = finding(report, module, slot);
    ASSERT_FALSE(wrong.diagnoses.empty()) << module;
    EXPECT_EQ(wrong.diagnoses.front().cause, Cause::attribute) << module;
    EXPECT_EQ(wrong.diagnoses.front().parameters.attribute, "label_smoothing") << module;
    EXPECT_EQ(wrong.diagnoses.front().parameters.value, 0.1) << module;
  }
}

// Cohere and Granite scale what the last projection gave, Gemma 2 caps it, in no module.
TEST(ProgramLosses, WhatIsDoneToLogitsBeforeIsKnown) {
  for (const auto& [attribute, right, wrong] : {std::tuple("logit_scale", 0.0625, 0.125),
                                                {"logit_scale", 1. / 6, 1.},
                                                {"softcap", 30., 0.},
                                                {"softcap", 2.5, 3.}}) {
    Attributes of_both, of_actual;
    of_both.set(attribute, right);
    of_actual.set(attribute, wrong);
    const Report clean = isolated(loss_of(0, 0.25, {0, 0}, {}, of_both));
    const Report report = isolated(loss_of(0, 0.25, {0, 0}, of_actual, of_both));
    EXPECT_EQ(clean.exit_status(), 0) << attribute << right;
    for (const auto& [module, slot] : {std::pair("loss", "loss"), {"head", "grad_output"}}) {
      EXPECT_EQ(finding(clean, module, slot).unjudged, "") << module << attribute << right;
      const Finding& found = finding(report, module, slot);
      ASSERT_FALSE(found.diagnoses.empty()) << module << attribute << right;
      EXPECT_EQ(found.diagnoses.front().cause, Cause::attribute) << module << attribute << right;
      EXPECT_EQ(found.diagnoses.front().parameters.attribute, attribute) << module;
      EXPECT_EQ(found.diagnoses.front().parameters.value, wrong) << module << attribute << right;
    }
  }
}

// The last place of a sequence has a target then, too.
TEST(ProgramLosses, TargetsThatAreNotShiftedAreNamed) {
  const Report report = isolated(loss_of(0, 0.25, {0, 0}, {}, {}, false));
  for (const auto& [module, slot] : {std::pair("loss", "loss"), {"head", "grad_output"}}) {
    const Finding& wrong = finding(report, module, slot);
    ASSERT_FALSE(wrong.diagnoses.empty()) << module;
    EXPECT_EQ(wrong.diagnoses.front().cause, Cause::wrong_tokens) << module;
    EXPECT_EQ(wrong.diagnoses.front().parameters.shift, -1) << module;
  }
}

TEST(ProgramLosses, OtherTargetsAreNamed) {
  const Report report = isolated(loss_of(1, 0.25));
  for (const auto& [module, slot] : {std::pair("loss", "loss"), {"head", "grad_output"}}) {
    const Finding& wrong = finding(report, module, slot);
    ASSERT_FALSE(wrong.diagnoses.empty()) << module;
    EXPECT_EQ(wrong.diagnoses.front().cause, Cause::wrong_tokens) << module;
    EXPECT_EQ(wrong.diagnoses.front().parameters.shift, 1) << module;
  }
}

}  // namespace
}  // namespace assay::program_losses_test
