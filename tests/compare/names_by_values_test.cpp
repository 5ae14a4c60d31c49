// Names that meet because what they name has the same values.
#include "diff_dumps.h"

namespace assay::names_by_values_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr auto f = Phase::forward;

// [4, 8]: other numbers for every layer, micro-batch and `what`.
Tensor numbers(std::int64_t layer, std::int64_t micro_batch, double what, double factor = 1) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < 32; ++i)
    values.push_back(factor * std::sin(what + 2.3 * static_cast<double>(i * (layer + 1)) +
                                       static_cast<double>(micro_batch)));
  return Tensor::from_values(DType::float32, {4, 8}, values);
}

struct Layers : MemoryDump {
  using MemoryDump::MemoryDump;
  // One result of each layer and micro-batch.
  void put(const std::string& module, const std::string& arg, double what, std::int64_t call = 0) {
    for (const std::int64_t layer : {0, 1, 2}) {
      for (const std::int64_t micro_batch : {0, 1}) {
        Identity id = identity(f, "layers." + std::to_string(layer) + "." + module, "output", arg);
        id.micro_batch = micro_batch;
        id.call = call;
        add(id, numbers(layer, micro_batch, what));
      }
    }
  }
  void spoil(std::size_t index) { replace(index, numbers(7, 7, 7)); }
};

TEST(NamesByValues, AnotherNameForTheSameIsFound) {
  Layers a("a"), r("r");
  a.put("mlp.gate", "0", 1);
  a.put("mlp.gate", "1", 2);
  r.put("mlp", "weights", 2);
  r.put("mlp.gate", "y", 1);
  r.put("mlp", "index", 3);
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.count(Verdict::passed), 12);
  EXPECT_EQ(report.count(Verdict::missing_actual), 6) << "what no value is like stays alone";
  EXPECT_EQ(report.count(Verdict::missing_reference), 0);
  EXPECT_THAT(report.notes,
              Contains(HasSubstr("'layers.0.mlp.gate output 0 (step 0, micro-batch 0, forward)' is "
                                 "'layers.0.mlp.gate output y (step 0, micro-batch 0, forward)'")));
}

// The name holds for all: one that differs is a difference, not another name.
TEST(NamesByValues, WhatThenDiffersFails) {
  Layers a("a"), r("r");
  a.put("mlp.gate", "0", 1);
  r.put("mlp.router", "y", 1);
  a.spoil(3);
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.count(Verdict::passed), 5);
  EXPECT_EQ(report.count(Verdict::failed), 1);
}

TEST(NamesByValues, FewThatAreNearAreNoName) {
  Layers a("a"), r("r");
  a.put("mlp.gate", "0", 1);
  r.put("mlp.router", "y", 1);
  for (const std::size_t i : {0, 1, 3}) a.spoil(i);
  EXPECT_EQ(diff(a, r, options()).count(Verdict::missing_reference), 6);
}

// Weights of experts are all near to 1/2.
TEST(NamesByValues, NumbersThatHardlyVaryAreNoName) {
  Layers a("a"), r("r");
  a.put("mlp.gate", "0", 1);
  r.put("mlp.router", "y", 5);
  for (std::size_t i = 0; i < a.records.size(); ++i) {
    for (Layers* side : {&a, &r}) {
      std::vector<double> near = side->read(i).values();
      for (double& v : near) v = 0.5 + 0.01 * v;
      side->replace(i, Tensor::from_values(DType::float32, {4, 8}, near));
    }
  }
  EXPECT_EQ(diff(a, r, options()).count(Verdict::missing_reference), 6);
}

// The other side's name is taken: by a call that has met nobody.
TEST(NamesByValues, ANameIsGivenOnce) {
  Layers a("a"), r("r");
  a.put("block", "y", 2, 0);
  a.put("block", "y", 3, 1);
  r.put("block", "y", 1, 0);
  r.put("block", "y", 2, 1);
  r.put("block", "y", 4, 2);
  EXPECT_EQ(diff(a, r, options()).findings.size(), 18u);
}

// A layer adds little to its input: what it is given is near to what the next is.
TEST(NamesByValues, TheNearestHasTheName) {
  Layers a("a"), r("r");
  a.put("attention", "0", 1.02);
  a.put("mlp", "0", 1);
  r.put("moe", "x", 1);
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.count(Verdict::passed), 6);
  EXPECT_EQ(report.count(Verdict::missing_reference), 6);
}

TEST(NamesByValues, OfAnotherLayerIsAnotherTensor) {
  MemoryDump a("a"), r("r");
  const auto id = [](const std::string& module) {
    Identity id = identity(f, module, "output", "y");
    id.micro_batch = 0;
    return id;
  };
  a.add(id("layers.0.mlp"), numbers(0, 0, 1));
  r.add(id("layers.1.gate"), numbers(0, 0, 1));
  EXPECT_EQ(diff(a, r, options()).count(Verdict::missing_reference), 1);
}

// A layer that one side calls once, and of which the other records two sums.
TEST(NamesByValues, CallsThatAreNotAsManyMeetByTheirValues) {
  Layers a("a"), r("r");
  a.put("block", "y", 2);
  r.put("block", "y", 1, 0);
  r.put("block", "y", 2, 1);
  const Report report = diff(a, r, options());
  EXPECT_EQ(report.count(Verdict::passed), 6);
  EXPECT_EQ(report.count(Verdict::failed), 0);
  Layers same("same");
  same.put("block", "y", 1, 0);
  same.put("block", "y", 2, 1);
  EXPECT_THAT(diff(same, r, options()).notes, Not(Contains(HasSubstr("have their values"))));
}

}  // namespace
}  // namespace assay::names_by_values_test
