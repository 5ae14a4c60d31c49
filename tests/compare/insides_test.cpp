// What shows how modules make their results, where the two sides make them differently.
#include "diff_dumps.h"

namespace assay::insides_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto f = Phase::forward;

struct Named {
  std::string module;
  std::int64_t extent = 2;
};

// One result of each, recorded as within its module.
struct RecordedWithin : MemoryDump {
  RecordedWithin(const std::string& name, const std::vector<Named>& within) : MemoryDump(name) {
    for (const Named& n : within) make(n.module, n.extent).within = true;
    make("attention.out", 2);
  }
  Record& make(const std::string& module, std::int64_t extent) {
    const std::vector<double> values(static_cast<std::size_t>(extent), 1);
    return add(identity(f, module, "output", "y"), Tensor::from_values(DType::float32, {extent}, values));
  }
};

Report compared(const std::vector<Named>& actual, const std::vector<Named>& reference) {
  const RecordedWithin a("a", actual), r("r", reference);
  return diff(a, r, options());
}

TEST(Insides, AreComparedWhereBothSidesHaveThem) {
  const std::vector<Named> both = {{"attention"}, {"attention.softmax()"}};
  const Report report = compared(both, both);
  EXPECT_EQ(report.findings.size(), 3u);
  EXPECT_THAT(report.notes, IsEmpty());
}

TEST(Insides, AContainersOfOneSideIsNotMissing) {
  const Report report = compared({}, {{"attention"}});
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.findings.size(), 1u);
  EXPECT_THAT(report.notes, Contains(HasSubstr("1 tensors within modules are left out")));
}

TEST(Insides, AnotherCallLeavesOutAllFunctionsOfItsModule) {
  const Report other = compared({{"attention.mul()"}, {"attention.softmax()"}, {"mlp.mul()"}},
                                {{"attention.softmax()"}, {"mlp.mul()"}});
  EXPECT_EQ(other.exit_status(), 0);
  EXPECT_EQ(other.findings.size(), 2u) << "mlp.mul() and attention.out";
  const Report longer = compared({{"attention.softmax()", 3}}, {{"attention.softmax()", 2}});
  EXPECT_EQ(longer.findings.size(), 1u);
}

TEST(Insides, BackwardHasCallsOfItsOwn) {
  const auto side = [](const std::string& name, const std::vector<std::string>& backward) {
    auto dump = std::make_unique<RecordedWithin>(name, std::vector<Named>{{"mlp.mul()"}});
    for (const std::string& module : backward) {
      const auto id = identity(Phase::backward, module, "output", "y");
      dump->add(id, Tensor::from_values(DType::float32, {1}, std::vector<double>{1})).within = true;
    }
    return dump;
  };
  const auto a = side("a", {"mlp.add()", "mlp.mm()"}), r = side("r", {"mlp.mm()", "mlp.add()"});
  const Report report = diff(*a, *r, options());
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_EQ(report.findings.size(), 2u) << "mlp.mul() and attention.out";
}

TEST(Insides, StepsOfARecorderThatTakesNoneAreNotMissing) {
  RecordedWithin a("a", {}), r("r", {});
  const auto number = [] { return Tensor::from_values(DType::float32, {1}, std::vector<double>{1}); };
  r.add(identity(f, "loss", "loss", "lm"), number());
  r.add(identity(Phase::optimizer, "fc", "param", "weight"), number());
  r.add(identity(Phase::optimizer, "fc", "state", "weight.exp_avg"), number());
  EXPECT_EQ(diff(a, r, options()).count(Verdict::missing_actual), 3);
  a.has_steps = false;
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.exit_status(), 0);
  EXPECT_THAT(report.notes,
              Contains(HasSubstr("3 losses, stepped weights and states of optimizers are not compared")));
}

TEST(Insides, WhatIsNotWithinStaysMissing) {
  const RecordedWithin a("a", {});
  RecordedWithin r("r", {{"attention"}});
  r.make("mlp", 2);
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.findings.size(), 2u);
}

// A replay has operators where a program has modules; weights are the same of both.
TEST(Insides, OfAReplayAgainstAProgramOnlyActivationsMayBeAlone) {
  MemoryDump program("program"), replay("replay");
  replay.producer = R"({"program": "assay replay"})";
  const auto put = [](MemoryDump& dump, const char* module, const char* slot, Phase phase) {
    dump.add(identity(phase, module, slot, "weight"), float32({1, 2}));
  };
  for (MemoryDump* dump : {&program, &replay}) {
    put(*dump, "norm", "param", f);
    put(*dump, "norm", "output", f);
  }
  put(program, "act", "output", f);
  put(replay, "attention", "output", f);
  put(replay, "router", "param", f);  // a buffer: no gradient moves it
  const Report right = diff(program, replay, options());
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.findings.size(), 2u);
  EXPECT_THAT(right.notes, Contains(HasSubstr("1 tensors of the program's modules")));
  const auto reshaped = [](MemoryDump& dump, const Shape& shape) {
    dump.add(identity(f, "mlp", "output", "y"), Tensor(DType::float32, shape));
  };
  reshaped(program, {4, 8});
  reshaped(replay, {8, 4});
  EXPECT_EQ(diff(program, replay, options()).count(Verdict::not_comparable), 1)
      << "another shape is a finding";
  put(replay, "head", "param", f);
  put(replay, "head", "grad", Phase::backward);
  put(program, "adapter", "param", f);
  const Report lacking = diff(program, replay, options());
  EXPECT_EQ(lacking.count(Verdict::missing_actual), 2);
  EXPECT_EQ(lacking.count(Verdict::missing_reference), 1);
  program.producer = replay.producer;
  EXPECT_EQ(diff(program, replay, options()).count(Verdict::missing_actual), 4) << "both are replays";
}

// Experts over ranks that have data of their own take the tokens of all of them.
TEST(ExchangedRows, AreLeftOutWhereTheStepHasAsMany) {
  const auto compared = [](std::int64_t first, std::int64_t second, int ranks) {
    MemoryDump a("a"), r("r");
    a.world_size = ranks;
    const auto put = [](MemoryDump& d, std::int64_t micro_batch, std::int64_t rows) {
      const auto add = [&](const char* module, const char* slot, std::int64_t extent) {
        Identity id = identity(f, module, slot, "x");
        id.micro_batch = micro_batch;
        const Shape shape{extent, 2};
        d.add(id, Tensor::from_values(DType::float32, shape,
                                      std::vector<double>(static_cast<std::size_t>(2 * extent), 1)));
      };
      add("moe.experts", "input", rows);
      add("moe.experts", "output", rows);
      add("moe", "output", 4);
    };
    put(a, 0, first), put(a, 1, second), put(r, 0, 8), put(r, 1, 8);
    return diff(a, r, options());
  };
  const Report exchanged = compared(5, 11, 2);
  EXPECT_EQ(exchanged.exit_status(), 0);
  EXPECT_EQ(exchanged.findings.size(), 2u);
  EXPECT_THAT(exchanged.notes,
              Contains(HasSubstr("8 tensors of moe.experts and modules like it are left out")));
  EXPECT_EQ(compared(5, 10, 2).exit_status(), 1) << "a token is lost";
  EXPECT_EQ(compared(5, 11, 1).exit_status(), 1) << "one rank has nobody to exchange with";
}

}  // namespace
}  // namespace assay::insides_test
