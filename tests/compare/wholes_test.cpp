// What is inside of an operator that is recorded as a whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/operators/engine/golden.h"
#include "isolated.h"

namespace assay::wholes_test {
namespace {

constexpr auto f = Phase::forward;

// A class that nobody knows, with a part that one side calls for each expert and the other once.
auto experts(const std::string& wrong) {
  return [=](MemoryDump& d, bool is_actual) {
    const Tensor x = normal_tensor(DType::float32, {6, 4}, 21),
                 gate_up = normal_tensor(DType::float32, {3, 10, 4}, 22),
                 down = normal_tensor(DType::float32, {3, 4, 5}, 23),
                 weights = Tensor::from_values(DType::float32, {6, 2}, Values(12, 0.375));
    const Tensor index =
        Tensor::from_indices({6, 2}, std::vector<std::int64_t>{0, 1, 1, 2, 2, 0, 0, 2, 1, 0, 2, 1});
    Tensor y = noisy(
        output("moe_experts",
               {{"x", x}, {"index", index}, {"weights", weights}, {"gate_up", gate_up}, {"down", down}},
               is_actual && wrong == "up first" ? Attributes{{"gate_first", false}} : Attributes(), "y"),
        is_actual ? 5 : 6);
    if (is_actual && wrong == "y") y = with_one_wrong(y);
    const auto add = [&](const char* slot, const char* arg, const Tensor& t) {
      d.add({0, 0, f, "mlp.experts", slot, arg, 0}, t).op = "SomeExperts";
    };
    d.add({0, -1, f, "mlp.experts", "param", "gate_up_proj", 0}, gate_up);
    d.add({0, -1, f, "mlp.experts", "param", "down_proj", 0}, down);
    add("input", "hidden_states", x);
    add("input", "top_k_index", index);
    add("input", "top_k_weights", weights);
    const Tensor part = normal_tensor(DType::float32, {is_actual && wrong != "up first" ? 12 : 4, 5},
                                      is_actual && wrong == "up first" ? 25 : 24);
    for (const std::int64_t call : {0, 1, 2}) {
      if (is_actual && call > 0) break;
      d.add({0, 0, f, "mlp.experts.act_fn", "input", "input", call}, part).op = "SiLU";
    }
    add("output", "y", y);
  };
}

TEST(Wholes, SettleWhatIsInside) {
  const Report right = isolated(experts(""));
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_EQ(right.coverage->unjudged, 0);
  const auto parts = std::ranges::count_if(right.findings, [](const Finding& x) {
    return x.exemption && x.exemption->kind == Exemption::Kind::part_of_whole;
  });
  EXPECT_EQ(parts, 3) << "one of another shape, two that the actual side lacks";
  const Report wrong = isolated(experts("y"));
  EXPECT_EQ(created(wrong), std::vector<std::string>{"mlp.experts output y"});
  EXPECT_EQ(wrong.exit_status(), 1);
}

// Weights of attention, which are asked for or not.
TEST(Wholes, SettleAResultThatOneSideDoesNotReturn) {
  const auto with_more = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      const Tensor x = normal_tensor(DType::float32, {6, 4}, 21);
      const Tensor y = output("silu", {{"x", x}}, {}, "y");
      const auto add = [&](const char* slot, const char* arg, const Tensor& t) {
        d.add({0, 0, f, "act", slot, arg, 0}, t).op = "SiLU";
      };
      add("input", "x", x);
      add("output", "0", is_actual && wrong == "y" ? with_one_wrong(y) : y);
      if (!is_actual) add("output", "1", normal_tensor(DType::float32, {6, 3}, 31));
    };
  };
  EXPECT_EQ(isolated(with_more("")).exit_status(), 0);
  const auto is_missing = [](const Finding& x) {
    return x.id.arg == "1" && x.verdict == Verdict::missing_actual;
  };
  EXPECT_EQ(std::ranges::count_if(isolated(with_more("y")).findings, is_missing), 1);
}

// The result of a module of an unknown class that follows from one inside of it.
TEST(Wholes, SettleAResultOfAnUnknownClassWhereAllOfTheOtherSideHaveMet) {
  const auto around = [](const std::string& other) {
    return [=](MemoryDump& d, bool is_actual) {
      const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, 0, phase, "attn", slot, arg, 0}, t).op = "SomeAttention";
      };
      const auto put = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
        d.add({0, 0, phase, "attn.act", slot, arg, 0}, t).op = "SiLU";
      };
      const Tensor x = normal_tensor(DType::float32, {6, 4}, 21),
                   g = normal_tensor(DType::float32, {6, 4}, 22),
                   more = normal_tensor(DType::float32, {6, 3}, 31), y = output("silu", {{"x", x}}, {}, "y");
      put(f, "input", "x", x);
      put(f, "output", "y", y);
      add(f, "output", "0", y);
      if (!is_actual) add(f, "output", "1", more);
      if (is_actual && !other.empty()) add(f, "output", other.c_str(), noisy(more, 3));
      add(Phase::backward, "grad_output", "0", g);
      if (!is_actual) add(Phase::backward, "grad_output", "1", more);
      put(Phase::backward, "grad_output", "y", g);
      put(Phase::backward, "grad_input", "x", output("silu", {{"x", x}, {"grad_y", g}}, {}, "grad_x"));
    };
  };
  EXPECT_EQ(isolated(around("")).exit_status(), 0);
  EXPECT_EQ(isolated(around("weights")).exit_status(), 1);
}

// Rows that the experts of one side take in another order, as a choice between equals moves one of them.
TEST(Wholes, MayPlaceRowsOtherwise) {
  const auto placed = [](const std::string& wrong) {
    return [=](MemoryDump& d, bool is_actual) {
      experts(wrong)(d, is_actual);
      const std::vector<double> x = normal_tensor(DType::float32, {6, 4}, 21).values();
      Values rows;
      for (const std::size_t row :
           is_actual ? std::vector{4U, 0U, 2U, 5U, 1U, 3U} : std::vector{0U, 4U, 2U, 5U, 1U, 3U})
        rows.insert(rows.end(), x.begin() + std::ptrdiff_t(row * 4), x.begin() + std::ptrdiff_t(row * 4 + 4));
      d.add({0, 0, f, "mlp.experts.up", "input", "input", 0},
            Tensor::from_values(DType::float32, {6, 4}, rows))
          .op = "SomeProducts";
    };
  };
  const Report right = isolated(placed(""));
  EXPECT_EQ(created(right), std::vector<std::string>());
  EXPECT_EQ(right.exit_status(), 0);
  EXPECT_TRUE(finding(right, "mlp.experts.up", "input").exemption);
  const std::vector<std::string> wrong = created(isolated(placed("y")));
  EXPECT_EQ(std::ranges::count(wrong, "mlp.experts output y"), 1);
}

TEST(Wholes, GiveTheirCauseToWhatIsInside) {
  const Report report = isolated(experts("up first"));
  const Finding& part = finding(report, "mlp.experts.act_fn", "input");
  ASSERT_FALSE(part.diagnoses.empty());
  EXPECT_EQ(part.diagnoses.front().cause, Cause::attribute);
  EXPECT_EQ(part.diagnoses.front().parameters.attribute, "gate_first");
  EXPECT_EQ(part.diagnoses.front().parameters.whole, "mlp.experts output y (step 0, micro-batch 0, forward)");
}

}  // namespace
}  // namespace assay::wholes_test
