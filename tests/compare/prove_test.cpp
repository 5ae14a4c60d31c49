#include "assay/compare/calls/prove.h"
#include "assay/compare/causes/call_mistakes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "../dumps/scratch.h"
#include "assay/operators/engine/generate.h"

namespace assay::prove_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

CheckOptions options(std::string_view policy = "derived") {
  CheckOptions o;
  o.policies = {load_policy(policy)};
  return o;
}

// A generated call with its float64 golden outputs, to be judged in `dtype`.
Case made_case(std::string_view op, const Example& example, DType dtype, std::uint64_t seed = 1) {
  Case c;
  c.op = &find_operator(op);
  c.name = std::string(op) + "/made";
  const CallShape call = parse_call(example);
  c.attributes = call.attributes;
  c.inputs = generate_inputs(*c.op, call, Fill::random, dtype, seed);
  for (const NamedTensor& t : compute_golden(*c.op, c.inputs, c.attributes, Level::fp64)) {
    c.outputs.push_back(
        {t.name, "", is_float(t.tensor.dtype()) ? dtype : t.tensor.dtype(), t.tensor.shape()});
  }
  return c;
}

std::vector<fs::path> case_folders() {
  std::vector<fs::path> folders = find_cases(fs::path(ASSAY_TEST_DATA) / "cases");
  const auto more = find_cases(fs::path(ASSAY_TEST_DATA) / "torch_cases");
  folders.insert(folders.end(), more.begin(), more.end());
  return folders;
}

class ProveCase : public testing::TestWithParam<fs::path> {};

TEST_P(ProveCase, RejectsEveryFault) {
  const Case c = load_case(GetParam());
  const CheckOptions o = options();
  CaseCheck check(c, o);
  int rejected = 0;
  for (const Finding& f : prove(check)) {
    EXPECT_TRUE(f.verdict == Verdict::passed || f.verdict == Verdict::ignored) << f.name << ": " << f.reason;
    rejected += f.verdict == Verdict::passed ? 1 : 0;
  }
  const bool empty =
      std::ranges::all_of(c.outputs, [](const CaseOutput& t) { return element_count(t.shape) == 0; });
  if (!empty) {
    EXPECT_GT(rejected, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ProveCase, testing::ValuesIn(case_folders()), [](const auto& info) {
  std::string name = info.param.parent_path().filename().string() + "_" + info.param.filename().string();
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(Prove, RejectsEveryFaultOfALongSumInFloat32) {
  const Case c = made_case("matmul", {"A=,M=4,K=4096,B=,N=3"}, DType::float32);
  const CheckOptions o = options();
  CaseCheck check(c, o);
  std::set<std::string> rejected;
  for (const Finding& f : prove(check)) {
    EXPECT_NE(f.verdict, Verdict::failed) << f.name << ": " << f.reason;
    if (f.name.starts_with("matmul/made y, ") && f.verdict == Verdict::passed)
      rejected.insert(f.name.substr(15));
  }
  EXPECT_THAT(rejected, testing::UnorderedElementsAre(
                            "one term of each sum skipped", "the last tile of each sum dropped",
                            "a bfloat16 accumulator", "tf32 inputs", "one element wrong", "one row zero"));
}

// The same gate with the table that the report gives: at K = 4096 and these magnitudes it lets through what
// it should not, and the proof says so.
TEST(Prove, SaysWhichFaultsAGateDoesNotSee) {
  Case c = made_case("matmul", {"A=,M=4,K=4096,B=,N=3"}, DType::float32);
  for (NamedTensor& input : c.inputs) {
    std::vector<double> values = input.tensor.values();
    for (double& v : values) v *= 0x1p-7;
    input.tensor = Tensor::from_values(DType::float32, input.tensor.shape(), values);
  }
  const CheckOptions o = options("telechat3");
  CaseCheck check(c, o);
  std::vector<std::string> accepted;
  for (const Finding& f : prove(check)) {
    if (f.verdict == Verdict::failed) accepted.push_back(f.name + ": " + f.reason);
  }
  EXPECT_THAT(accepted, testing::Contains(HasSubstr("tf32 inputs: accepted, error/allowed")));
}

// A gate that does not pass what is right rejects faults too, but for no reason.
TEST(Prove, ProvesNothingOfAGateThatCannotPass) {
  const Case c = made_case("matmul", {"A=,M=3,K=5,B=,N=4"}, DType::float64);
  const CheckOptions o = options("flash");
  CaseCheck check(c, o);
  const auto findings = prove(check);
  ASSERT_EQ(findings.size(), c.outputs.size());
  for (const Finding& f : findings) {
    EXPECT_EQ(f.verdict, Verdict::no_rule);
    EXPECT_THAT(f.reason, HasSubstr("golden itself does not pass, so nothing is proved"));
  }
}

TEST(Declared, ANarrowerResultIsNoneOfTheDeclaredDtype) {
  const Case c = made_case("matmul", {"A=,M=3,K=5,B=,N=4"}, DType::float32);
  const CheckOptions o = options();
  CaseCheck check(c, o);
  const auto golden = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
  Finding narrow, wide;
  const auto as = [&](DType dtype) {
    return Tensor::from_values(dtype, golden[0].tensor.shape(), golden[0].tensor.values());
  };
  check.judge_output(narrow, c.outputs[0], {as(DType::float16), {}, {}});
  EXPECT_EQ(narrow.verdict, Verdict::not_comparable);
  EXPECT_EQ(narrow.reason, "float16; case.json declares float32");
  check.judge_output(wide, c.outputs[0], {as(DType::float64), {}, {}});
  EXPECT_EQ(wide.verdict, Verdict::passed);
}

// What is exact in tf32 already is no fault.
TEST(Prove, IgnoresFaultsThatChangeNothing) {
  const Case c = made_case("matmul", {"A=,M=4,K=64,B=,N=3"}, DType::bfloat16);
  const CheckOptions o = options();
  CaseCheck check(c, o);
  const auto findings = prove(check);
  const auto tf32 = std::ranges::find(findings, "matmul/made y, tf32 inputs", &Finding::name);
  ASSERT_NE(tf32, findings.end());
  EXPECT_EQ(tf32->verdict, Verdict::ignored);
  EXPECT_EQ(tf32->reason, "they change no bit here");
}

Finding judged(const Case& c, const CheckOptions& o, const std::string& output,
               const std::vector<double>& values) {
  CaseCheck check(c, o);
  Finding f;
  const auto declared = std::ranges::find(c.outputs, output, &CaseOutput::name);
  const Tensor actual = Tensor::from_values(declared->dtype, declared->shape, values);
  check.judge_output(f, *declared, {actual, {}, {}});
  explain_output(f, check, *declared, actual);
  return f;
}

// The example of the TeleChat3-MoE report: prod, whose usual backward divides the product by an input.
std::vector<double> naive_prod_backward(const Case& c) {
  const std::vector<double> x = c.inputs[0].tensor.values(), g = c.inputs[1].tensor.values();
  std::vector<double> grad;
  const std::size_t width = x.size() / g.size();
  for (std::size_t row = 0; row < g.size(); ++row) {
    float y = 1;
    for (std::size_t i = 0; i < width; ++i) y *= static_cast<float>(x[row * width + i]);
    for (std::size_t i = 0; i < width; ++i) {
      grad.push_back(static_cast<float>(g[row]) * y / static_cast<float>(x[row * width + i]));
    }
  }
  return grad;
}

TEST(Extremes, MakeTheReportsExampleMistrusted) {
  Case c = made_case("reduce_prod", {"S=6x5", "dim=1"}, DType::float32);
  EXPECT_EQ(judged(c, options(), "grad_x", naive_prod_backward(c)).verdict, Verdict::passed);
  std::vector<double> x = c.inputs[0].tensor.values();
  x[10] = 1e-25;
  x[12] = 3e-17;
  c.inputs[0].tensor = Tensor::from_values(DType::float32, c.inputs[0].tensor.shape(), x);
  const Finding f = judged(c, options(), "grad_x", naive_prod_backward(c));
  EXPECT_EQ(f.verdict, Verdict::mistrusted);
  EXPECT_THAT(f.reason, HasSubstr("outside, error/allowed"));
  EXPECT_THAT(f.reason, HasSubstr("2 of the 30 values of 'x' are outside of its domain"));
  EXPECT_THAT(f.reason, HasSubstr("first 1e-25 at [2, 0]"));
  // Even where the numbers agree.
  const auto golden = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
  EXPECT_EQ(judged(c, options(), "grad_x", golden[1].tensor.values()).verdict, Verdict::mistrusted);
}

TEST(Extremes, AreNeverGenerated) {
  for (const Operator* op : operators()) {
    for (const Example& example : op->examples) {
      for (const Fill fill : {Fill::random, Fill::integer, Fill::special}) {
        for (const NamedTensor& t : generate_inputs(*op, parse_call(example), fill, DType::float32, 1)) {
          if (!is_float(t.tensor.dtype())) continue;
          for (const double v : t.tensor.values()) {
            EXPECT_TRUE(input_arg(*op, t.name).domain.contains(v)) << op->name << ' ' << t.name << ' ' << v;
          }
        }
      }
    }
  }
}

TEST(Device, AKernelMayBeRightOnItsOwn) {
  Case c = made_case("reduce_sum", {"S=3x300", "dims=[1]"}, DType::float32);
  std::vector<double> values;
  {
    const SummationScope bfloat16({.accumulator = DType::bfloat16});
    values = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64)[0].tensor.values();
  }
  const Finding plain = judged(c, options(), "y", values);
  EXPECT_EQ(plain.verdict, Verdict::failed);
  EXPECT_THAT(plain.notes, testing::Contains(HasSubstr("within the bound of --accumulator ")));
  ASSERT_FALSE(plain.diagnoses.empty());
  EXPECT_EQ(plain.diagnoses.front().cause, Cause::accumulator_precision);
  CheckOptions stated = options();
  stated.accumulator = "bfloat16";
  const Finding f = judged(c, stated, "y", values);
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_THAT(f.rule, HasSubstr("accumulator bfloat16"));
}

// bfloat16 softmax: what forward stored is what backward reads.
TEST(Device, AKernelMayKeepItsIntermediateResultsNarrow) {
  Case c = made_case("softmax", {"A=6,C=15,B="}, DType::bfloat16);
  const auto golden = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
  const std::vector<double> y = golden[0].tensor.values(), g = c.inputs[1].tensor.values();
  std::vector<double> grad;
  for (std::size_t row = 0; row < 6; ++row) {
    double inner = 0;
    const auto stored = [&](std::size_t i) { return round_to(DType::bfloat16, y[row * 15 + i]); };
    for (std::size_t i = 0; i < 15; ++i) inner += stored(i) * g[row * 15 + i];
    for (std::size_t i = 0; i < 15; ++i) grad.push_back(stored(i) * (g[row * 15 + i] - inner));
  }
  const Finding plain = judged(c, options(), "grad_x", grad);
  EXPECT_EQ(plain.verdict, Verdict::failed);
  EXPECT_THAT(plain.notes, testing::Contains(HasSubstr("within the bound of --intermediate bfloat16")));
  CheckOptions stated = options();
  stated.intermediate = DType::bfloat16;
  const Finding f = judged(c, stated, "grad_x", grad);
  EXPECT_EQ(f.verdict, Verdict::passed) << f.reason;
  EXPECT_THAT(f.rule, HasSubstr("intermediate results in bfloat16"));
}

// What PyTorch's eager operators make of bfloat16, every step rounded (tests/data/eager_cases/eager.py).
class EagerCase : public testing::TestWithParam<fs::path> {};

TEST_P(EagerCase, IsWithinTheBoundOfNarrowIntermediateResults) {
  const Case c = load_case(GetParam());
  const CheckOptions plain = options();
  CheckOptions stated = plain;
  stated.intermediate = DType::bfloat16;
  CaseCheck fused(c, plain), eager(c, stated);
  bool some_failed = false;
  for (const CaseOutput& output : c.outputs) {
    const Tensor actual = c.read(output);
    Finding as_fused, as_eager;
    fused.judge_output(as_fused, output, {actual, {}, {}});
    eager.judge_output(as_eager, output, {actual, {}, {}});
    EXPECT_EQ(as_eager.verdict, Verdict::passed) << output.name << ": " << as_eager.reason;
    if (as_fused.verdict == Verdict::passed) continue;
    some_failed = true;
    explain_output(as_fused, fused, output, actual);
    EXPECT_THAT(as_fused.diagnoses, testing::IsEmpty()) << output.name;
    EXPECT_THAT(as_fused.notes, testing::Contains(HasSubstr("--intermediate bfloat16"))) << output.name;
  }
  EXPECT_TRUE(some_failed);
}

INSTANTIATE_TEST_SUITE_P(Eager, EagerCase,
                         testing::ValuesIn(find_cases(fs::path(ASSAY_TEST_DATA) / "eager_cases")),
                         [](const auto& info) {
                           return info.param.parent_path().filename().string() + "_" +
                                  info.param.filename().string();
                         });

TEST(Baseline, AllowsSoManyTimesItsOwnError) {
  const Case c = made_case("rms_norm", {"N=6,C=512"}, DType::bfloat16);
  const auto golden = compute_golden(*c.op, c.inputs, c.attributes, Level::fp64);
  const std::vector<double> y = golden[0].tensor.values();
  for (const char* policy : {"flash", "ascend-l0", "ascend-l1", "ascend-l2"}) {
    const Finding good = judged(c, options(policy), "y", y);
    EXPECT_EQ(good.verdict, Verdict::passed) << policy << ": " << good.reason;
    EXPECT_THAT(good.rule, HasSubstr(policy));
    std::vector<double> off = y;
    for (double& v : off) v *= 1.05;
    const Finding bad = judged(c, options(policy), "y", off);
    EXPECT_EQ(bad.verdict, Verdict::failed) << policy;
    EXPECT_GT(bad.ratio, 1) << policy;
    EXPECT_EQ(judged(c, options(policy), "y", std::vector<double>(y.size(), 0)).verdict, Verdict::failed);
  }
  std::vector<double> nan = y;
  nan[3] = std::nan("");
  EXPECT_THAT(judged(c, options("flash"), "y", nan).reason, HasSubstr("NaN or Inf differ"));
}

TEST(Bits, ArePromisedUpToThePayloadOfANaN) {
  Case c = made_case("cast", {"N=4", "to=\"float8_e5m2\""}, DType::float32);
  c.outputs[0].dtype = DType::float8_e5m2;
  c.inputs[0].tensor = Tensor({4}, std::span<const float>(std::vector<float>{1, -2, NAN, 0}));
  const CheckOptions o = options();
  CaseCheck check(c, o);
  const auto judge_codes = [&](std::vector<unsigned char> codes) {
    std::vector<std::byte> bytes;
    for (const unsigned char code : codes) bytes.push_back(std::byte(code));
    Finding f;
    check.judge_output(f, c.outputs[0], {Tensor(DType::float8_e5m2, {4}, bytes), {}, {}});
    return f.verdict;
  };
  for (const unsigned char code : std::initializer_list<unsigned char>{0x7d, 0x7e, 0x7f, 0xff}) {
    EXPECT_EQ(judge_codes({0x3c, 0xc0, code, 0}), Verdict::passed) << int{code};
  }
  EXPECT_EQ(judge_codes({0x3c, 0xc0, 0x7c, 0}), Verdict::failed);     // an infinity is no NaN
  EXPECT_EQ(judge_codes({0x3c, 0xc0, 0x7e, 0x80}), Verdict::failed);  // -0 is not 0
}

TEST(Baseline, ZerosDoNotPassTheNoise) {
  Case c = made_case("matmul", {"A=,M=4,K=8,B=,N=4"}, DType::float32);
  for (NamedTensor& input : c.inputs) {
    std::vector<double> values = input.tensor.values();
    for (double& v : values) v *= 0x1p-20;
    input.tensor = Tensor::from_values(DType::float32, input.tensor.shape(), values);
  }
  EXPECT_EQ(judged(c, options("flash"), "y", std::vector<double>(16, 0)).verdict, Verdict::mistrusted);
}

TEST(Baseline, IsNotThereForFloat64) {
  const Case c = made_case("rms_norm", {"N=6,C=33"}, DType::float64);
  const Finding f = judged(c, options("flash"), "y", std::vector<double>(6 * 33, 1));
  EXPECT_EQ(f.verdict, Verdict::no_rule);
  EXPECT_THAT(f.reason, HasSubstr("there is none for float64"));
}

}  // namespace
}  // namespace assay::prove_test
