// What makes a failing output of a case, found as in the isolation of a dump.
#include <cmath>
#include <optional>

#include "assay/compare/calls/case_writer.h"
#include "check_case.h"
#include "recorded_pair.h"

namespace assay::check_causes_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// One call of an operator: what it should be, and the output of a kernel.
struct Kernel {
  std::string op;
  Attributes attributes;
  std::vector<NamedTensor> inputs;
  DType dtype = DType::float32;
  std::optional<DType> intermediate = {};

  Tensor golden(const Attributes& attributes_of_kernel, std::span<const NamedTensor> inputs_of_kernel) const {
    const auto outputs =
        compute_golden(find_operator(op), inputs_of_kernel, attributes_of_kernel, Level::fp64, "y");
    const Tensor& y = output_named(outputs, "y");
    return Tensor::from_values(dtype, y.shape(), y.values());
  }
  Finding judged(const Tensor& y, bool whole = false) const {
    const Scratch scratch;
    const std::filesystem::path folder = scratch.path() / "case";
    write_case({.op = &find_operator(op),
                .name = "case",
                .attributes = attributes,
                .inputs = inputs,
                .outputs = {{"y", y}},
                .with_outputs = true},
               folder);
    CheckOptions o = check_options();
    o.whole = whole;
    o.intermediate = intermediate;
    return check({folder}, o).findings.at(0);
  }
};

std::string first_cause(const Finding& f) {
  return f.diagnoses.empty() ? "none" : sentence(f.diagnoses.front());
}

Kernel norm(Attributes attributes, double size = 1) {
  const Tensor x = normal_tensor(DType::float32, {16, 64}, 1), w = normal_tensor(DType::float32, {64}, 2);
  std::vector<double> small = x.values();
  for (double& v : small) v *= size;
  return {"rms_norm",
          std::move(attributes),
          {{"x", Tensor::from_values(DType::float32, {16, 64}, small)}, {"weight", w}}};
}

TEST(CheckCauses, AnotherOperatorOfTheSameOperands) {
  const Kernel silu{"silu", {}, {{"x", normal_tensor(DType::float32, {16, 64}, 1)}}};
  const Kernel gelu{"gelu", {}, silu.inputs};
  EXPECT_THAT(first_cause(silu.judged(gelu.golden({}, gelu.inputs))),
              HasSubstr("it is gelu, where the reference has silu"));
}

TEST(CheckCauses, AnotherEpsilon) {
  const Kernel k = norm({{"eps", 1e-6}}, 1e-2);
  EXPECT_THAT(first_cause(k.judged(k.golden({{"eps", 1e-5}}, k.inputs))),
              HasSubstr("it is rms_norm with eps = 1e-05, where the reference has eps = 1e-06"));
  EXPECT_THAT(first_cause(k.judged(k.golden({{"eps", 3.3e-5}}, k.inputs))),
              HasSubstr("with eps = 3.3e-05, where the reference has eps = 1e-06"));
}

TEST(CheckCauses, AnotherGain) {
  const Kernel k = norm({{"eps", 1e-6}});
  std::vector<NamedTensor> inputs = k.inputs;
  std::vector<double> gain = inputs[1].tensor.values();
  for (double& w : gain) w += 1;
  inputs[1].tensor = Tensor::from_values(DType::float64, {64}, gain);
  EXPECT_THAT(first_cause(k.judged(k.golden(k.attributes, inputs))),
              HasSubstr("with weight + 1, where the reference has weight"));
}

// The other attributes of the case stay as they are stated.
TEST(CheckCauses, OneOfSeveralAttributes) {
  const Kernel k = {"rope",
                    {{"offset", 7.0}, {"base_theta", 5000.0}},
                    {{"x", normal_tensor(DType::float32, {2, 40, 64}, 3)}}};
  Attributes wrong = k.attributes;
  wrong.set("style", "interleaved");
  const Finding f = k.judged(k.golden(wrong, k.inputs));
  EXPECT_THAT(first_cause(f),
              HasSubstr("it is rope with style = \"interleaved\", where the reference has style ="));
  ASSERT_FALSE(f.diagnoses.empty());
  EXPECT_EQ(f.diagnoses.front().parameters.attribute, "style");
}

TEST(CheckCauses, AFactor) {
  const Kernel k = norm({});
  std::vector<double> half = k.golden({}, k.inputs).values();
  for (double& v : half) v /= 2;
  const Finding f = k.judged(Tensor::from_values(DType::float32, {16, 64}, half));
  EXPECT_THAT(first_cause(f), HasSubstr("actual = 0.5 x reference"));
}

TEST(CheckCauses, NarrowInputs) {
  const Kernel k = {"linear",
                    {},
                    {{"x", normal_tensor(DType::float32, {16, 256}, 4)},
                     {"w", normal_tensor(DType::float32, {8, 256}, 5)}}};
  std::vector<NamedTensor> narrow = k.inputs;
  for (NamedTensor& t : narrow) {
    std::vector<double> values = t.tensor.values();
    for (double& v : values) v = round_to(DType::tfloat32, v);
    t.tensor = Tensor::from_values(DType::float32, t.tensor.shape(), values);
  }
  const Finding f = k.judged(k.golden({}, narrow));
  EXPECT_THAT(first_cause(f), HasSubstr("it is linear of inputs rounded to tfloat32"));
  EXPECT_THAT(f.notes, testing::Not(Contains(HasSubstr("--accumulator")))) << "the cause is known";
}

// Three values of bfloat16 hold some ten bits: less than the digits of the epsilon that fits them.
TEST(CheckCauses, FewValuesProveNoEpsilon) {
  const Kernel k = {
      "rms_norm",
      {{"eps", 1e-5}},
      {{"x", Tensor::from_values(DType::bfloat16, {3, 1}, std::vector<double>{1, 1.5, 0.703125})}},
      DType::bfloat16};
  const Finding f = k.judged(k.golden({{"eps", 0.037}}, k.inputs));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.diagnoses, testing::Each(testing::Field(&Diagnosis::cause, testing::Ne(Cause::attribute))))
      << first_cause(f);
}

// Rows of one size: an epsilon and a factor make the same result, and the factor is the simpler one.
TEST(CheckCauses, AFactorOfRowsOfOneSizeIsNoEpsilon) {
  Kernel k = norm({{"eps", 0.02}});
  std::vector<double> ones = k.inputs[0].tensor.values();
  for (double& v : ones) v = v < 0 ? -1 : 1;
  k.inputs[0].tensor = Tensor::from_values(DType::float32, {16, 64}, ones);
  std::vector<double> y = k.golden(k.attributes, k.inputs).values();
  for (double& v : y) v *= 0.9;
  EXPECT_THAT(first_cause(k.judged(Tensor::from_values(DType::float32, {16, 64}, y))),
              HasSubstr("actual = 0.9 x reference"));
}

// What hides a fault is no advice: the bound of a coarse accumulator has room for one wrong element.
TEST(CheckCauses, OneWrongElementIsNoAccumulator) {
  const Kernel k = {
      "matmul",
      {},
      {{"a", normal_tensor(DType::float32, {64, 64}, 8)}, {"b", normal_tensor(DType::float32, {64, 64}, 9)}}};
  std::vector<double> y = k.golden({}, k.inputs).values();
  y[1234] += 1;
  EXPECT_THAT(k.judged(Tensor::from_values(DType::float32, {64, 64}, y)).notes, IsEmpty());
}

// An operator that rounds once keeps nothing between steps.
TEST(CheckCauses, WithoutStepsNothingIsKeptNarrow) {
  const Kernel k = {"add",
                    {},
                    {{"a", normal_tensor(DType::bfloat16, {64, 64}, 10)},
                     {"b", normal_tensor(DType::bfloat16, {64, 64}, 11)}},
                    DType::bfloat16};
  std::vector<double> y = k.golden({}, k.inputs).values();
  y[77] = std::nextafter(static_cast<float>(y[77]), 9.0F) + std::abs(y[77]) / 128;
  const Finding f = k.judged(Tensor::from_values(DType::bfloat16, {64, 64}, y));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.notes, IsEmpty());
}

TEST(CheckCauses, OneElementHasNone) {
  const Kernel k = norm({});
  std::vector<double> y = k.golden({}, k.inputs).values();
  y[77] *= 1.001;
  const Finding f = k.judged(Tensor::from_values(DType::float32, {16, 64}, y));
  EXPECT_EQ(f.verdict, Verdict::failed);
  EXPECT_THAT(f.diagnoses, testing::Each(testing::Field(&Diagnosis::cause, testing::Ne(Cause::attribute))));
}

// The elements of a row share its statistic, the 4096 rows none.
TEST(CheckCauses, AFactorBelowEveryBoundIsSaid) {
  Kernel k = norm({});
  k.inputs[0].tensor = normal_tensor(DType::float32, {4096, 64}, 6);
  std::vector<double> y = k.golden({}, k.inputs).values();
  const Tensor right = Tensor::from_values(DType::float32, {4096, 64}, y);
  for (double& v : y) v *= 1 + 1.2e-6;
  const Tensor wrong = Tensor::from_values(DType::float32, {4096, 64}, y);
  EXPECT_THAT(k.judged(right, true).notes, IsEmpty());
  EXPECT_EQ(k.judged(right, true).verdict, Verdict::passed);
  const Finding failed = k.judged(wrong);
  EXPECT_EQ(failed.verdict, Verdict::failed);
  EXPECT_THAT(failed.reason, HasSubstr("as a whole it is off by 1.2e-06"));
  EXPECT_GT(failed.ratio, 1);
  ASSERT_FALSE(failed.diagnoses.empty());
  EXPECT_EQ(failed.diagnoses.front().cause, Cause::factor);
  EXPECT_NEAR(failed.diagnoses.front().parameters.factor.value(), 1 + 1.2e-6, 1e-7);
}

// Eager SwiGLU: sigmoid and activation are stored in bfloat16, which few distinct gates round alike.
TEST(CheckCauses, SharedRoundingsAreNoFactor) {
  Kernel k = {"swiglu",
              {},
              {{"gate", normal_tensor(DType::bfloat16, {1024, 512}, 12)},
               {"up", normal_tensor(DType::bfloat16, {1024, 512}, 13)}},
              DType::bfloat16};
  const auto stored = [](double v) { return round_to(DType::bfloat16, v); };
  const std::vector<double> gate = k.inputs[0].tensor.values(), up = k.inputs[1].tensor.values();
  std::vector<double> y;
  for (std::size_t i = 0; i < gate.size(); ++i)
    y.push_back(up[i] * stored(gate[i] * stored(1 / (1 + std::exp(-gate[i])))));
  k.intermediate = DType::bfloat16;
  const Finding f = k.judged(Tensor::from_values(DType::bfloat16, {1024, 512}, y), true);
  EXPECT_EQ(f.verdict, Verdict::passed) << f.reason;
}

}  // namespace
}  // namespace assay::check_causes_test
