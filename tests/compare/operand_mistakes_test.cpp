// A call that was made with another operand than the recorded one.
#include <gmock/gmock.h>

#include "assay/operators/engine/golden.h"
#include "recorded_pair.h"

namespace assay::operand_mistakes_test {
namespace {

constexpr DType f32 = DType::float32;

Tensor made(std::string_view op, const std::vector<NamedTensor>& inputs) {
  const Tensor y = output_named(compute_golden(find_operator(op), inputs, {}, Level::fp64), "y");
  return Tensor::from_values(f32, y.shape(), y.values());
}

// One norm in two steps; in the second it takes what `weight` and `x` are.
struct Norm {
  std::vector<Tensor> x, w;
  Norm() {
    for (std::uint64_t step = 0; step < 2; ++step) {
      x.push_back(normal_tensor(f32, {8, 32}, 1 + step));
      w.push_back(normal_tensor(f32, {32}, 11 + step));
    }
  }
  Finding with(const Tensor& y) const {
    RecordedPair run;
    for (std::int64_t step = 0; step < 2; ++step) {
      const auto at = static_cast<std::size_t>(step);
      const Tensor right = made("rms_norm", {{"x", x[at]}, {"weight", w[at]}});
      run.add({step, -1, Phase::forward, "norm", "param", "weight", 0}, w[at], "rms_norm");
      run.add({step, 0, Phase::forward, "norm", "input", "x", 0}, x[at], "rms_norm");
      run.add({step, 0, Phase::forward, "norm", "output", "y", 0}, step == 1 ? y : right, right, "rms_norm");
    }
    return run.diff().findings.back();
  }
};

bool says(const Finding& f, const Diagnosis& expected) {
  return !f.diagnoses.empty() && agrees(f.diagnoses.front(), expected);
}

TEST(OperandMistakes, TheWeightOfTheStepBefore) {
  const Norm n;
  const Finding f = n.with(made("rms_norm", {{"x", n.x[1]}, {"weight", n.w[0]}}));
  EXPECT_TRUE(says(f, {Cause::stale, {.step = 0, .op = "rms_norm", .operand = "weight"}}));
}

TEST(OperandMistakes, AnActivationOfTheStepBefore) {
  const Norm n;
  const Finding f = n.with(made("rms_norm", {{"x", n.x[0]}, {"weight", n.w[1]}}));
  EXPECT_TRUE(says(f, {Cause::stale, {.step = 0, .op = "rms_norm", .operand = "x"}}));
}

TEST(OperandMistakes, AWeightThatIsRolled) {
  const Norm n;
  Values rolled = n.w[1].values();
  std::ranges::rotate(rolled, rolled.begin() + 1);
  const Finding f =
      n.with(made("rms_norm", {{"x", n.x[1]}, {"weight", Tensor::from_values(f32, {32}, rolled)}}));
  EXPECT_TRUE(says(f, {Cause::permuted, {.shift = -1, .op = "rms_norm", .operand = "weight"}}));
}

TEST(OperandMistakes, AWeightThatIsRounded) {
  const Norm n;
  const Tensor narrow = Tensor::from_values(DType::float8_e4m3fn, {32}, n.w[1].values());
  const Finding f =
      n.with(made("rms_norm", {{"x", n.x[1]}, {"weight", Tensor::from_values(f32, {32}, narrow.values())}}));
  EXPECT_TRUE(says(
      f, {Cause::input_precision, {.dtype = DType::float8_e4m3fn, .op = "rms_norm", .operand = "weight"}}));
}

TEST(OperandMistakes, AnOperatorThatWasLeftOut) {
  const Norm n;
  EXPECT_TRUE(says(n.with(n.x[1]), {Cause::left_out, {.op = "rms_norm", .operand = "x"}}));
}

TEST(OperandMistakes, AnOperatorThatLeftOutTheLastRows) {
  const Norm n;
  Values some = made("rms_norm", {{"x", n.x[1]}, {"weight", n.w[1]}}).values();
  const Values x = n.x[1].values();
  std::copy(x.begin() + 6 * 32, x.end(), some.begin() + 6 * 32);
  EXPECT_TRUE(says(n.with(Tensor::from_values(f32, {8, 32}, some)),
                   {Cause::left_out, {.elements = 64, .of = 256, .op = "rms_norm", .operand = "x"}}));
}

TEST(OperandMistakes, NothingFitsByAccident) {
  const Norm n;
  const Finding f = n.with(normal_tensor(f32, {8, 32}, 99));
  EXPECT_TRUE(
      std::ranges::all_of(f.diagnoses, [](const Diagnosis& d) { return d.parameters.operand.empty(); }));
}

}  // namespace
}  // namespace assay::operand_mistakes_test
