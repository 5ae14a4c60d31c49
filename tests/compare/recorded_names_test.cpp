// Recorders of functions and modules (msprobe) number arguments and have names of their own for operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../dumps/scratch.h"
#include "assay/compare/diff.h"
#include "assay/operators/engine/golden.h"
#include "memory_dump.h"

namespace assay::recorded_names_test {
namespace {

using testing::HasSubstr;
using testing::Not;

Tensor random(const Shape& shape, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = normal(bits);
  return Tensor::from_values(DType::float32, shape, values);
}

struct Recorded {
  const char* slot;
  const char* arg;
  Tensor tensor;
};

// One call of an operator, whose results are off by `factor`, behind a result that is off by `upstream`.
struct Call {
  std::string op;  // as recorded
  std::vector<Recorded> inputs;
  std::string golden_op;
  std::vector<NamedTensor> golden_inputs;
  std::vector<std::pair<std::string, Recorded>> results;  // by the operator's name; the tensor is made here

  void record(MemoryDump& d, double factor) const {
    const auto add = [&](const Recorded& r, const Tensor& tensor) {
      const bool is_backward = std::string_view(r.slot).starts_with("grad");
      d.add({0, -1, is_backward ? Phase::backward : Phase::forward, "call", r.slot, r.arg, 0}, tensor).op =
          op;
    };
    for (const Recorded& r : inputs) add(r, r.tensor);
    const auto golden = compute_golden(find_operator(golden_op), golden_inputs, {}, Level::fp64);
    for (const auto& [name, r] : results) {
      const auto found = std::ranges::find(golden, name, &NamedTensor::name);
      ASSERT_NE(found, golden.end()) << name;
      std::vector<double> values = found->tensor.values();
      for (double& v : values) v *= factor;
      add(r, Tensor::from_values(DType::float32, found->tensor.shape(), values));
    }
  }
};

Report compare(const Call& call, double factor, const std::string& rules = "") {
  MemoryDump a("a"), r("r");
  call.record(a, factor), call.record(r, 1);
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  if (!rules.empty()) {
    const Scratch scratch;
    options.rules = Rules::load(scratch.write("rules.toml", rules));
  }
  return diff(a, r, options);
}

// Every result was judged by its inputs, which were recorded under numbers.
void expect_judged(const Call& call, const std::string& rules = "") {
  const Report report = compare(call, 1.01, rules);
  for (const auto& [name, recorded] : call.results) {
    const auto f = std::ranges::find_if(report.findings, [r = &recorded](const Finding& finding) {
      return finding.id.slot == r->slot && finding.id.arg == r->arg;
    });
    ASSERT_NE(f, report.findings.end());
    EXPECT_THAT(f->count_source, HasSubstr(call.golden_op + " " + name)) << call.op;
    ASSERT_TRUE(f->origin) << call.op << " " << name;
    EXPECT_EQ(f->origin->kind, Origin::Kind::created);
    EXPECT_GT(f->origin->local_ratio, 100) << "1 % against float32's rounding";
    EXPECT_THAT(f->origin->reason, HasSubstr(call.golden_op + " on its own recorded inputs"));
  }
  EXPECT_EQ(compare(call, 1, rules).exit_status(), 0);
}

const Tensor x = random({6, 16}, 1), w = random({8, 16}, 2), b = random({8}, 3), grad = random({6, 8}, 4);

TEST(RecordedNames, AFunctionsArgumentsAreNumbered) {
  expect_judged({"torch.nn.functional.linear",
                 {{"input", "0", x}, {"input", "1", w}, {"input", "2", b}, {"grad_output", "0", grad}},
                 "linear",
                 {{"x", x}, {"w", w}, {"b", b}, {"grad_y", grad}},
                 {{"y", {"output", "0", {}}},
                  {"grad_x", {"grad_input", "0", {}}},
                  {"grad_w", {"grad_input", "1", {}}},
                  {"grad_b", {"grad_input", "2", {}}}}});
}

TEST(RecordedNames, NumbersMaySkipWhatIsNoTensor) {
  // torch.nn.functional.rms_norm(x, normalized_shape, weight)
  const Tensor weight = random({16}, 5);
  expect_judged({"torch.nn.functional.rms_norm",
                 {{"input", "0", x}, {"input", "2", weight}},
                 "rms_norm",
                 {{"x", x}, {"weight", weight}},
                 {{"y", {"output", "0", {}}}}});
}

TEST(RecordedNames, IndicesAreToldByTheirDtype) {
  const Tensor index = Tensor::from_values(DType::int64, {5}, std::vector<double>{0, 7, 3, 3, 1});
  expect_judged({"torch.nn.functional.embedding",
                 {{"input", "0", index}, {"input", "1", w}},
                 "embedding",
                 {{"weight", w}, {"index", index}},
                 {{"y", {"output", "0", {}}}}});
}

TEST(RecordedNames, MethodsOfTensorsAreFunctions) {
  const Tensor other = random({6, 16}, 6);
  for (const char* name : {"torch.Tensor.__mul__", "torch.Tensor.mul", "torch.mul"}) {
    expect_judged({name,
                   {{"input", "0", x}, {"input", "1", other}},
                   "mul",
                   {{"a", x}, {"b", other}},
                   {{"y", {"output", "0", {}}}}});
  }
}

TEST(RecordedNames, AModuleIsKnownByItsClass) {
  expect_judged({"Linear",
                 {{"param", "weight", w}, {"param", "bias", b}, {"input", "0", x}},
                 "linear",
                 {{"x", x}, {"w", w}, {"b", b}},
                 {{"y", {"output", "0", {}}}}});
}

TEST(RecordedNames, AClassOfOnesOwnIsKnownByWhatItComputesOrByARule) {
  const Tensor weight = random({16}, 5);
  const Call norm{"Norm",
                  {{"param", "weight", weight}, {"input", "0", x}},
                  "rms_norm",
                  {{"x", x}, {"weight", weight}},
                  {{"y", {"output", "0", {}}}}};
  const Finding found = compare(norm, 1.01).findings.back();
  EXPECT_THAT(found.origin->reason, HasSubstr("rms_norm on its own recorded inputs"));
  EXPECT_EQ(compare(norm, 1).exit_status(), 0);
  expect_judged(norm, "[[operator]]\nmatch = 'call.*'\nop = 'rms_norm'");
}

TEST(RecordedNames, AParametersGradientNeedsTheOneThatIsHandedBack) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    const auto add = [&](Phase phase, const char* slot, const char* arg, const Tensor& t) {
      d->add({0, -1, phase, "norm", slot, arg, 0}, t).op = "RMSNorm";
    };
    add(Phase::forward, "input", "0", x);
    add(Phase::forward, "param", "weight", random({16}, 5));
    add(Phase::backward, "grad", "weight", random({16}, d == &a ? 7 : 8));
  }
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  const Report report = diff(a, r, options);
  ASSERT_TRUE(report.findings.back().origin);
  EXPECT_EQ(report.findings.back().origin->kind, Origin::Kind::unknown);
}

// torch.nn.MultiheadAttention without biases, of one tensor. It takes the weight of out_proj, which is not
// called.
void record_attention(MemoryDump& d, double wrong, bool is_called) {
  const Tensor tokens = random({5, 2, 8}, 6), in = random({24, 8}, 7), out = random({8, 8}, 8);
  const auto made =
      compute_golden(find_operator("multihead_attention"),
                     std::vector<NamedTensor>{{"query", tokens},
                                              {"in_proj_weight", in},
                                              {"out_proj_weight", out},
                                              {"grad_attn_output", random({5, 2, 8}, 9)},
                                              {"grad_attn_output_weights", random({2, 5, 5}, 11)}},
                     {{"num_heads", 2}}, Level::fp64);
  const auto add = [&](std::int64_t micro_batch, Phase phase, const std::string& module, const char* slot,
                       const char* arg, const Tensor& t) {
    d.add({0, micro_batch, phase, module, slot, arg, 0},
          Tensor::from_values(DType::float32, t.shape(), t.values()))
        .op = micro_batch < 0    ? ""
              : module == "attn" ? "MultiheadAttention"
                                 : "Linear";
  };
  const auto result = [&](const char* name, double factor) {
    std::vector<double> values = output_named(made, name).values();
    for (double& v : values) v *= factor;
    return Tensor::from_values(DType::float32, output_named(made, name).shape(), values);
  };
  add(-1, Phase::forward, "attn", "param", "in_proj_weight", in);
  add(-1, Phase::forward, "attn.out_proj", "param", "weight", out);
  for (const char* arg : {"query", "key", "value"}) add(0, Phase::forward, "attn", "input", arg, tokens);
  if (is_called) {
    add(0, Phase::forward, "attn.out_proj", "input", "input", random({5, 2, 8}, 10));
    add(0, Phase::forward, "attn.out_proj", "output", "y", result("attn_output", 1));
  }
  add(0, Phase::forward, "attn", "output", "0", result("attn_output", 1));
  add(0, Phase::forward, "attn", "output", "1", result("attn_output_weights", 1));
  add(0, Phase::backward, "attn", "grad_output", "1", random({2, 5, 5}, 11));  // both are of one call
  add(0, Phase::backward, "attn", "grad_output", "0", random({5, 2, 8}, 9));
  add(0, Phase::backward, "attn", "grad_input", "query", result("grad_query", 1));
  add(-1, Phase::backward, "attn", "grad", "in_proj_weight", result("grad_in_proj_weight", wrong));
  add(-1, Phase::backward, "attn.out_proj", "grad", "weight", result("grad_out_proj_weight", wrong));
}

TEST(RecordedNames, ParametersOfAPartThatIsNeverCalledAreThoseOfTheCallAroundIt) {
  DiffOptions options;
  options.policies.push_back(load_policy("telechat3"));
  for (const bool is_called : {false, true}) {
    MemoryDump a("a"), r("r");
    record_attention(a, 1.01, is_called), record_attention(r, 1, is_called);
    const Report report = diff(a, r, options);
    for (const Finding& wrong : report.findings) {
      if (wrong.id.slot != "grad") continue;
      ASSERT_TRUE(wrong.origin);
      if (is_called) {  // a class of the same name that is made otherwise
        EXPECT_THAT(wrong.origin->reason, Not(HasSubstr("multihead_attention")));
        continue;
      }
      EXPECT_EQ(wrong.origin->kind, Origin::Kind::created);
      EXPECT_THAT(wrong.origin->reason,
                  HasSubstr("multihead_attention (num_heads = 2) on its own recorded inputs"));
    }
    EXPECT_EQ(std::ranges::count(report.findings, Verdict::passed, &Finding::verdict), is_called ? 12 : 10);
  }
}

}  // namespace
}  // namespace assay::recorded_names_test
