// Parameters that one side does not train, and optimizers that differ.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isolated.h"

namespace assay::frozen_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward, o = Phase::optimizer;

struct Training {
  bool trains = true, has_gradient = true;  // of the second parameter
  std::string state = {};                   // that the optimizer keeps
  std::string producer = {};
};

// Two parameters, of which a step takes a tenth of the gradient away.
auto run(const Training& actual, const Training& reference) {
  return [=](MemoryDump& d, bool is_actual) {
    const Training& own = is_actual ? actual : reference;
    d.producer = own.producer;
    for (const std::string module : {"embed", "head"}) {
      const Tensor w = normal_tensor(DType::float32, {16, 8}, *module.data()),
                   g = normal_tensor(DType::float32, {16, 8}, 7 + static_cast<std::uint64_t>(*module.data()));
      const bool trains = module == "head" || own.trains;
      d.add({0, -1, f, module, "param", "weight", 0}, w);
      d.add({0, 0, f, module, "output", "y", 0}, normal_tensor(DType::float32, {4, 8}, 3));
      if (module == "head" || own.has_gradient) d.add({0, -1, b, module, "grad", "weight", 0}, g);
      if (trains && !own.state.empty())
        d.add({0, -1, o, module, "state", "weight." + own.state, 0}, noisy(g, is_actual ? 1 : 2));
      d.add({0, -1, o, module, "param", "weight", 0},
            trains ? plus(w, own.state == "exp_avg" ? -0.2 : -0.1, g) : w);
    }
  };
}

TEST(Frozen, OnBothSidesIsRight) {
  const Training frozen = {false, false};
  EXPECT_EQ(isolated(run(frozen, frozen)).exit_status(), 0);
}

TEST(Frozen, OnTheActualSideIsOneFailure) {
  const Report report = isolated(run({false, false}, {}));
  const Finding& gradient = finding(report, "embed", "grad");
  EXPECT_EQ(gradient.verdict, Verdict::failed);
  ASSERT_FALSE(gradient.diagnoses.empty());
  EXPECT_EQ(gradient.diagnoses.front().cause, Cause::no_gradient);
  EXPECT_EQ(report.first_failure(), &gradient);
  const auto stepped = std::ranges::find_if(
      report.findings, [](const Finding& x) { return x.id.phase == o && x.id.module == "embed"; });
  EXPECT_EQ(stepped->verdict, Verdict::inherited);
  EXPECT_EQ(stepped->origin->root, gradient.name);
}

TEST(Frozen, WithAGradientItIsInNoGroupOfTheOptimizer) {
  const Report report = isolated(run({false, true}, {}));
  const Finding* wrong = report.first_failure();
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->id.module, "embed");
  ASSERT_FALSE(wrong->diagnoses.empty());
  EXPECT_EQ(wrong->diagnoses.front().cause, Cause::not_updated);
}

TEST(Frozen, InTheReferenceAloneIsAFailureThatSaysSo) {
  const Report report = isolated(run({}, {false, false}));
  const auto stepped = std::ranges::find_if(
      report.findings, [](const Finding& x) { return x.id.phase == o && x.id.module == "embed"; });
  EXPECT_EQ(stepped->verdict, Verdict::failed);
  ASSERT_FALSE(stepped->diagnoses.empty());
  EXPECT_EQ(stepped->diagnoses.front().cause, Cause::updated);
  EXPECT_NE(sentence(stepped->diagnoses.front()).find("the reference has no gradient of it"),
            std::string::npos);
}

TEST(OtherOptimizer, IsSaidOnce) {
  const Training without_states = {true, true, "", R"({"optimizer":"SGD","lr":0.1})"},
                 with_momentum = {true, true, "momentum_buffer"}, adam = {true, true, "exp_avg"};
  for (const Training& own : {without_states, with_momentum}) {
    const Report report = isolated(run(own, adam));
    const Finding* first = report.first_failure();
    ASSERT_NE(first, nullptr);
    ASSERT_FALSE(first->diagnoses.empty()) << first->name;
    EXPECT_EQ(first->diagnoses.front().cause, Cause::optimizer);
    EXPECT_EQ(report.count(Verdict::failed) + report.count(Verdict::undecided), 1);
  }
}

// States that nobody recorded are no other optimizer's.
TEST(OtherOptimizer, IsNotConcludedFromStatesThatAreNotRecorded) {
  const Report report = isolated(run({true, true, "", R"({"optimizer":"AdamW"})"}, {true, true, "exp_avg"}));
  for (const Finding& x : report.findings) {
    for (const Diagnosis& d : x.diagnoses) EXPECT_NE(d.cause, Cause::optimizer) << x.name;
  }
}

}  // namespace
}  // namespace assay::frozen_test
