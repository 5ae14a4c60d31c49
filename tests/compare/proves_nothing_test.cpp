// What looks like a mistake, or like a copy, or like a right part, and is no proof of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isolated.h"

namespace assay::proves_nothing_test {
namespace {

constexpr auto f = Phase::forward, b = Phase::backward;

// A router whose scores nobody recorded: with another choice there may be nothing to weigh.
TEST(ProvesNothing, ZerosBehindAnotherChoice) {
  const auto record = [](bool chooses) {
    return [=](MemoryDump& d, bool is_actual) {
      const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, 0, phase, "gate", slot, arg, 0}, t).op = "SomeRouter";
      };
      const Tensor x = noisy(normal_tensor(DType::float32, {8, 6}, 95), is_actual ? 5 : 6);
      const Tensor y = output("silu", {{"x", x}}, {}, "y");
      d.add({0, 0, f, "act", "input", "x", 0}, x).op = "silu";
      d.add({0, 0, f, "act", "output", "y", 0}, y).op = "silu";
      add(f, "input", "x", y);
      std::vector<std::int64_t> index = {0, 1, 2, 3, 1, 2, 0, 3, 2, 0, 1, 2, 3, 1, 0, 2};
      if (is_actual && chooses) std::swap(index[1], index[2]);
      add(f, "output", "index", Tensor::from_indices({8, 2}, index));
      const Tensor gradient = normal_tensor(DType::float32, {8, 2}, 96);
      add(b, "grad_output", "weights",
          is_actual ? Tensor::from_values(DType::float32, {8, 2}, Values(16, 0)) : gradient);
    };
  };
  EXPECT_EQ(finding(isolated(record(true)), "gate", "grad_output").verdict, Verdict::undecided);
  EXPECT_EQ(finding(isolated(record(false)), "gate", "grad_output").verdict, Verdict::failed);
}

// Rows for experts, by a choice that nobody recorded: other tokens may stand there. Where each part takes as
// many of them, nothing shows that somebody chose.
TEST(ProvesNothing, RowsInAnotherOrderWhereSomebodyChoseThem) {
  const auto record = [](std::int64_t rows_of_second) {
    return [=](MemoryDump& d, bool is_actual) {
      const auto add = [&](const char* module, const Tensor& x) {
        d.add({0, 0, f, module, "input", "x", 0}, x).op = "SomeExpert";
      };
      const Tensor before = noisy(normal_tensor(DType::float32, {8, 6}, 95), is_actual ? 5 : 6);
      d.add({0, 0, f, "act", "input", "x", 0}, before).op = "silu";
      d.add({0, 0, f, "act", "output", "y", 0}, output("silu", {{"x", before}}, {}, "y")).op = "silu";
      Values values = normal_tensor(DType::float32, {9, 6}, 97).values();
      if (is_actual) std::rotate(values.begin(), values.begin() + 12, values.end());
      add("mlp.experts.0", Tensor::from_values(DType::float32, {9, 6}, values));
      add("mlp.experts.1", normal_tensor(DType::float32, {rows_of_second, 6}, 98));
    };
  };
  EXPECT_EQ(finding(isolated(record(7)), "mlp.experts.0", "input").verdict, Verdict::undecided);
  EXPECT_EQ(finding(isolated(record(9)), "mlp.experts.0", "input").verdict, Verdict::failed);
}

// A weight of a gate: its gradient is one sum over all tokens, whose terms may cancel, times other numbers.
// Roundings give it any factor, but not what is handed back to each token.
TEST(ProvesNothing, AFactorOfOneSumTimesOtherNumbers) {
  const auto record = [](Phase phase, std::int64_t micro_batch, const char* slot, const char* arg) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = noisy(normal_tensor(DType::float32, {8, 6}, 95), is_actual ? 5 : 6);
      d.add({0, 0, f, "act", "input", "x", 0}, x).op = "silu";
      d.add({0, 0, f, "act", "output", "y", 0}, output("silu", {{"x", x}}, {}, "y")).op = "silu";
      d.add({0, 0, f, "gate", "input", "x", 0}, x).op = "SomeGate";
      Values gradient = normal_tensor(DType::bfloat16, {8, 6}, 96).values();
      for (double& v : gradient) v *= is_actual ? 1.640625 : 1;
      d.add({0, micro_batch, phase, "gate", slot, arg, 0},
            Tensor::from_values(DType::bfloat16, {8, 6}, gradient))
          .op = "SomeGate";
    };
  };
  EXPECT_EQ(finding(isolated(record(b, -1, "grad", "weight")), "gate", "grad").verdict, Verdict::undecided);
  EXPECT_EQ(finding(isolated(record(b, 0, "grad_input", "x")), "gate", "grad_input").verdict,
            Verdict::failed);
}

// A module that computes with what the one in it makes, in functions that nobody recorded.
auto gated(bool is_scaled) {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor x = normal_tensor(DType::float32, {8, 6}, 95), w = normal_tensor(DType::float32, {4, 6}, 96);
    const Tensor y = noisy(output("linear", {{"x", x}, {"w", w}}, {}, "y"), is_actual ? 5 : 6);
    d.add({0, -1, f, "gate.wg", "param", "weight", 0}, w).op = "Linear";
    const auto add = [&](const char* module, const char* slot, const char* arg, const Tensor& t) -> Record& {
      Record& r = d.add({0, 0, f, module, slot, arg, 0}, t);
      r.op = std::string(module) == "gate.wg" ? "Linear" : "SomeGate";
      return r;
    };
    add("gate", "input", "x", x);
    add("gate.wg", "input", "input", x);
    add("gate.wg", "output", "y", y);
    Values values = output("tanh", {{"x", y}}, {}, "y").values();
    for (double& v : values) v *= is_actual && is_scaled ? 1.5 : 1;
    const Tensor made = Tensor::from_values(DType::float32, {8, 4}, values);
    add("gate", "output", "y", made).within = true;
    add("", "output", "y", Tensor::from_values(DType::float32, {}, Values{made.values()[0] * 3}));
  };
}

TEST(ProvesNothing, ARightModuleOfWhatTheModuleAroundItComputes) {
  EXPECT_EQ(isolated(gated(false)).exit_status(), 0);
  const Report wrong = isolated(gated(true));
  EXPECT_NE(finding(wrong, "gate", "output").verdict, Verdict::exempt);
  EXPECT_EQ(wrong.first_failure()->id.module, "gate");
  EXPECT_EQ(finding(wrong, "", "output").verdict, Verdict::inherited) << "the model, in which it is";
}

// A mask of weights: where these are ones and zeros they are its columns, too.
TEST(ProvesNothing, AMaskOfWhoseColumnsItHas) {
  const auto record = [](MemoryDump& d, bool is_actual) {
    Values weights = normal_tensor(DType::float32, {64, 8}, 99).values(), mask(64 * 6, 0);
    for (std::size_t i = 0; i < 64; ++i) {
      for (std::size_t c = 0; c < 6; ++c) weights[8 * i + c] = mask[6 * i + c] = i % 6 == c ? 1 : 0;
    }
    if (is_actual) weights[0] = 0.5;
    d.add({0, 0, f, "gate", "output", "y", 0}, Tensor::from_values(DType::float32, {64, 8}, weights)).op =
        "A";
    d.add({0, 0, f, "experts", "input", "x", 0}, Tensor::from_values(DType::float32, {64, 3, 2}, mask)).op =
        "B";
  };
  EXPECT_EQ(finding(isolated(record), "experts", "input").verdict, Verdict::passed);
}

// "Attention" of one library is given q, k and v; of most models it makes them of what it is given.
TEST(ProvesNothing, TheNameOfAClassThatMakesItsOperandsItself) {
  const auto record = [](MemoryDump& d, bool is_actual) {
    const Tensor before = normal_tensor(DType::float32, {6, 8}, 1),
                 x = output("silu", {{"x", before}}, {}, "y");
    const auto add = [&](Phase phase, const std::string& module, const char* slot,
                         const Tensor& t) -> Record& {
      return d.add({0, 0, phase, module, slot, std::string_view(slot).ends_with("input") ? "x" : "y", 0}, t);
    };
    add(f, "act", "input", before).op = "silu";
    add(f, "act", "output", x).op = "silu";
    for (const char* slot : {"input", "output", "grad_output"}) {
      Record& container = add(slot[0] == 'g' ? b : f, "attention", slot, slot[0] == 'i' ? x : before);
      container.op = "Attention", container.within = true;
    }
    Tensor sum = Tensor::from_values(DType::float32, x.shape(), Values(48, 0));
    for (const char* part : {"attention.q", "attention.k", "attention.v"}) {
      add(f, part, "input", x).op = "SomeProjection";
      const Tensor gradient = normal_tensor(DType::float32, {6, 8}, static_cast<unsigned>(part[10]));
      add(b, part, "grad_input", gradient).op = "SomeProjection";
      sum = plus(sum, 1, gradient);
    }
    add(b, "act", "grad_output", is_actual ? with_one_wrong(sum) : sum).op = "silu";
  };
  EXPECT_EQ(created(isolated(record)), std::vector<std::string>{"act grad_output y"});
  EXPECT_EQ(isolated(record).coverage->unjudged, 0);
}

}  // namespace
}  // namespace assay::proves_nothing_test
