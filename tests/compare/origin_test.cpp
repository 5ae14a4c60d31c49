#include "assay/compare/origin/origin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "assay/compare/diff.h"
#include "assay/operators/engine/golden.h"
#include "memory_dump.h"

namespace assay::origin_test {
namespace {

using testing::HasSubstr;
using Kind = Origin::Kind;

Tensor random(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = normal(bits);
  return Tensor::from_values(dtype, shape, values);
}

Tensor scaled(const Tensor& t, double factor) {
  std::vector<double> values = t.values();
  for (double& v : values) v *= factor;
  return Tensor::from_values(t.dtype(), t.shape(), values);
}

// What a correct kernel makes: golden, rounded to the dtype.
Tensor result(std::string_view op, std::string_view output, const std::vector<NamedTensor>& inputs,
              const Attributes& attributes = {}, DType dtype = DType::float32) {
  for (const NamedTensor& t : compute_golden(find_operator(op), inputs, attributes, Level::fp64)) {
    if (t.name == output) return Tensor::from_values(dtype, t.tensor.shape(), t.tensor.values());
  }
  throw Error("no output {}", output);
}

// A norm and a projection behind it, recorded as Megatron's names have them.
struct Layer {
  double eps = 1e-6;       // not the operator's default, and recorded nowhere
  double input = 1;        // factor of what comes in
  double after_norm = 1;   // factor that a faulty norm puts on its result
  double after_dense = 1;  // and a faulty projection
  double weight = 1;
  DType dtype = DType::float32;

  void record(MemoryDump& d) const {
    const auto add = [&](Phase phase, const char* module, const char* slot, const char* arg, std::int64_t mb,
                         const char* op, const Tensor& t) {
      d.add({0, mb, phase, module, slot, arg, 0}, t).op = op;
    };
    const Tensor norm_weight = random(dtype, {16}, 1),
                 dense_weight = scaled(random(dtype, {8, 16}, 2), weight);
    const Tensor x = scaled(random(dtype, {6, 16}, 3), 0.01 * input);
    const Tensor y = scaled(
        result("rms_norm", "y", {{"x", x}, {"weight", norm_weight}}, {{"eps", eps}}, dtype), after_norm);
    const Tensor z = scaled(result("linear", "y", {{"x", y}, {"w", dense_weight}}, {}, dtype), after_dense);
    add(Phase::forward, "norm", "param", "weight", -1, "", norm_weight);
    add(Phase::forward, "dense", "param", "weight", -1, "", dense_weight);
    add(Phase::forward, "norm", "input", "x", 0, "rms_norm", x);
    add(Phase::forward, "norm", "output", "y", 0, "rms_norm", y);
    add(Phase::forward, "dense", "input", "x", 0, "matmul", y);
    add(Phase::forward, "dense", "output", "logits", 0, "matmul", z);
  }
};

DiffOptions options() {
  DiffOptions o;
  o.policies.push_back(load_policy("telechat3"));
  return o;
}

const Finding& at(const Report& r, std::string_view module, std::string_view slot) {
  for (const Finding& f : r.findings) {
    if (f.id.module == module && f.id.slot == slot) return f;
  }
  throw Error("no finding {} {}", module, slot);
}

Report compare(const Layer& actual, const Layer& reference = {}) {
  MemoryDump a("a"), r("r");
  actual.record(a), reference.record(r);
  return diff(a, r, options());
}

TEST(Origin, AWrongOperatorIsTheRootAndWhatFollowsInherits) {
  const Report report = compare({.after_norm = 1.01});
  const Finding& norm = at(report, "norm", "output");
  ASSERT_TRUE(norm.origin);
  EXPECT_EQ(norm.verdict, Verdict::failed);
  EXPECT_EQ(norm.origin->kind, Kind::created);
  EXPECT_GT(norm.origin->local_ratio, 1000) << "1 % against a few units in the last place";
  EXPECT_THAT(norm.origin->reason, HasSubstr("rms_norm (eps = 1e-6) on its own recorded inputs"));
  const Finding& dense = at(report, "dense", "output");
  EXPECT_EQ(dense.verdict, Verdict::inherited);
  EXPECT_LE(dense.origin->local_ratio, 1);
  EXPECT_EQ(dense.origin->root, norm.name);
  EXPECT_EQ(at(report, "dense", "input").origin->root, norm.name);
  EXPECT_EQ(report.summary(), "6 compared: 3 passed, 1 failed, 2 inherited; 0 not compared");
  EXPECT_EQ(report.exit_status(), 1);
  EXPECT_EQ(report.first_failure(), &norm);
}

TEST(Origin, IndependentRootsAreAllReported) {
  const Report report = compare({.after_norm = 1.01, .after_dense = 0.98});
  EXPECT_EQ(at(report, "norm", "output").origin->kind, Kind::created);
  EXPECT_EQ(at(report, "dense", "output").origin->kind, Kind::created);
  EXPECT_EQ(at(report, "dense", "output").verdict, Verdict::failed);
}

TEST(Origin, AnotherEpsilonIsAFaultOfTheNorm) {
  const Report report = compare({.eps = 1e-5});
  EXPECT_EQ(at(report, "norm", "output").origin->kind, Kind::created);
}

TEST(Origin, AttributesAreThoseThatExplainTheReference) {
  // Both sides have the same epsilon, which is not the default; what differs came in.
  const Report report = compare({.input = 1.1});
  const Finding& input = at(report, "norm", "input");
  EXPECT_EQ(input.verdict, Verdict::no_rule) << "a larger accumulation count might allow it";
  const Finding& norm = at(report, "norm", "output");
  EXPECT_LE(norm.origin->local_ratio, 1);
  EXPECT_NE(norm.origin->kind, Kind::created);
}

// Beside the reference's large inputs no epsilon shows.
TEST(Origin, AttributesThatTheReferenceDoesNotTellApartAreNoFault) {
  const Layer actual, reference{.input = 1000};
  MemoryDump a("a"), r("r");
  actual.record(a), reference.record(r);
  DiffOptions isolating = options();
  const Report report = diff(a, r, isolating);
  EXPECT_EQ(at(report, "norm", "output").origin->kind, Kind::inherited);
  Layer wrong;
  wrong.after_norm = 1.001;
  MemoryDump w("w");
  wrong.record(w);
  EXPECT_EQ(at(diff(w, r, isolating), "norm", "output").origin->kind, Kind::created);
}

TEST(Origin, ParametersThatDifferAreNoFaultOfTheOperator) {
  const Report report = compare({.weight = 1.1});
  const Finding& weight = at(report, "dense", "param");
  EXPECT_EQ(weight.origin->kind, Kind::unknown);
  EXPECT_EQ(at(report, "dense", "output").verdict, Verdict::inherited);
  EXPECT_EQ(at(report, "dense", "output").origin->root, weight.name);
}

TEST(Origin, LoadedParametersFollowFromNothing) {
  MemoryDump a("a"), r("r");
  for (MemoryDump* d : {&a, &r}) {
    for (const char* module : {"one", "two"})
      d->add({0, -1, Phase::forward, module, "param", "weight", 0}, random(DType::float32, {8}, d == &a));
  }
  const Report report = diff(a, r, options());
  for (const Finding& f : report.findings) {
    EXPECT_EQ(f.verdict, Verdict::failed) << f.name;
    EXPECT_EQ(f.origin->kind, Kind::unknown) << f.name;
  }
}

TEST(Origin, NarrowResultsAreHeldToTheirOwnRounding) {
  const Report same = compare({.dtype = DType::bfloat16}, {});
  for (const Finding& f : same.findings) EXPECT_TRUE(!f.origin || f.origin->kind != Kind::created) << f.name;
  const Report wrong = compare({.after_dense = 1.1, .dtype = DType::bfloat16}, {});
  EXPECT_EQ(at(wrong, "dense", "output").origin->kind, Kind::created);
}

struct Block : MemoryDump {
  Block(double input, double output, double inner) : MemoryDump("d") {
    const auto put = [&](const char* module, const char* slot, double value) {
      add({0, 0, Phase::forward, module, slot, "x", 0}, float32({value}));
    };
    put("block", "input", input);
    put("block.inner", "output", inner);
    put("block", "output", output);
    put("other", "output", output);
  }
};

TEST(Origin, WithoutAReplayTheInputsDecide) {
  const Block reference(1, 1, 1);
  const Report inside = diff(Block(1, 2, 1), reference, options());
  EXPECT_EQ(at(inside, "block", "output").origin->kind, Kind::created);
  EXPECT_THAT(at(inside, "block", "output").origin->reason, HasSubstr("input x"));
  EXPECT_EQ(at(inside, "other", "output").origin->root, "block output x (step 0, micro-batch 0, forward)");
  const Report before = diff(Block(2, 2, 1), reference, options());
  EXPECT_EQ(at(before, "block", "input").origin->kind, Kind::unknown);
  EXPECT_EQ(at(before, "block", "output").verdict, Verdict::inherited);
  const Report below = diff(Block(1, 2, 2), reference, options());
  EXPECT_EQ(at(below, "block", "output").origin->root,
            "block.inner output x (step 0, micro-batch 0, forward)");
}

// What experts return is weighed by one side alone.
TEST(Origin, AnInputOfOneSideAloneMakesAnotherCall) {
  struct Combine : MemoryDump {
    explicit Combine(bool is_weighed) : MemoryDump("d") {
      const auto put = [&](const char* slot, const char* arg, const Tensor& t) {
        add({0, 0, Phase::forward, "combine", slot, arg, 0}, t).op = "moe_unpermute";
      };
      const Tensor rows = Tensor::from_values(DType::float32, {4, 1}, std::vector<double>{1, 2, 4, 8}),
                   probs =
                       Tensor::from_values(DType::float32, {2, 2}, std::vector<double>{0.5, 0.5, 0.25, 0.75});
      put("input", "expert_out", rows);
      put("input", "sorted_index", Tensor::from_indices({4}, std::vector<std::int64_t>{0, 2, 1, 3}));
      if (is_weighed) put("input", "probs", probs);
      const std::vector<double> plain = {1 + 4, 2 + 8}, weighed = {0.5 * 1 + 0.5 * 4, 0.25 * 2 + 0.75 * 8};
      put("output", "y", Tensor::from_values(DType::float32, {2, 1}, is_weighed ? weighed : plain));
    }
  };
  const auto output = [](bool actual, bool reference) {
    return at(diff(Combine(actual), Combine(reference), options()), "combine", "output");
  };
  EXPECT_EQ(output(true, false).origin->kind, Kind::created);
  EXPECT_FALSE(output(false, true).origin->local_ratio <= 1) << output(false, true).origin->reason;
}

// The loss of a step is recorded behind the backward passes of its first micro-batches.
TEST(Origin, ForwardDoesNotFollowFromBackwardOfItsStep) {
  struct Step : MemoryDump {
    explicit Step(double x) : MemoryDump("d") {
      add({0, 0, Phase::backward, "m", "grad_output", "y", 0}, float32({x}));
      add({0, -1, Phase::forward, "step", "loss", "loss", 0}, float32({x}));
      add({0, -1, Phase::backward, "n", "grad", "weight", 0}, float32({x}));
    }
  };
  const Report report = diff(Step(2), Step(1), options());
  EXPECT_EQ(at(report, "step", "loss").origin->kind, Kind::unknown);
  EXPECT_EQ(at(report, "n", "grad").origin->kind, Kind::inherited);
}

TEST(Origin, TensorsThatOnlyHaveANameFollowFromNothing) {
  MemoryDump a("a"), r("r");
  for (const char* name : {"x", "y"}) a.add(name, float32({2})), r.add(name, float32({1}));
  const Report report = diff(a, r, options());
  for (const Finding& f : report.findings) {
    EXPECT_EQ(f.verdict, Verdict::failed);
    EXPECT_FALSE(f.origin);
  }
}

// The gradient of a weight is a sum over micro-batches, each from what was recorded of it.
struct Backward : MemoryDump {
  Backward(double factor, double of_second, double first_counts = 1) : MemoryDump("d") {
    const auto put = [&](Phase phase, const char* slot, const char* arg, std::int64_t mb, const Tensor& t) {
      add({0, mb, phase, "dense", slot, arg, 0}, t).op = "matmul";
    };
    const Tensor w = random(DType::float32, {4, 8}, 1);
    put(Phase::forward, "param", "weight", -1, w);
    std::vector<double> sum(32, 0);
    for (unsigned mb = 0; mb < 2; ++mb) {
      const Tensor x = random(DType::float32, {5, 8}, 10 + mb);
      const Tensor g = scaled(random(DType::float32, {5, 4}, 20 + mb), mb == 1 ? of_second : 1);
      put(Phase::forward, "input", "x", mb, x);
      put(Phase::backward, "grad_output", "y", mb, g);
      const Tensor part = result("linear", "grad_w", {{"x", x}, {"w", w}, {"grad_y", g}});
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += (mb == 0 ? first_counts : 1) * part.value(static_cast<std::int64_t>(i));
    }
    for (double& v : sum) v *= factor;
    put(Phase::backward, "grad", "weight", -1, Tensor::from_values(DType::float32, {4, 8}, sum));
  }
};

TEST(Origin, AParameterGradientIsReplayedOverItsMicroBatches) {
  const Backward reference(1, 1);
  const Report halved = diff(Backward(0.5, 1), reference, options());
  EXPECT_EQ(at(halved, "dense", "grad").origin->kind, Kind::created);
  EXPECT_THAT(at(halved, "dense", "grad").origin->reason, HasSubstr("linear on its own recorded inputs"));
  const Report propagated = diff(Backward(1, 1.5), reference, options());
  EXPECT_EQ(at(propagated, "dense", "grad").verdict, Verdict::inherited);
  EXPECT_LE(at(propagated, "dense", "grad").origin->local_ratio, 1);
}

TEST(Origin, MicroBatchesThatCountOtherwiseAreNamed) {
  const Backward reference(1, 1);
  const auto diagnosis = [&](const Backward& actual) {
    const Report report = diff(actual, reference, options());
    const auto& found = at(report, "dense", "grad").diagnoses;
    return found.empty() ? "" : sentence(found.front());
  };
  EXPECT_THAT(diagnosis({1, 1, 0}),
              HasSubstr("micro-batches 0, 1 count 0, 1 times, each once in the reference"));
  EXPECT_THAT(diagnosis({1, 1, 0.25}), HasSubstr("count 0.25, 1 times"));
  EXPECT_THAT(diagnosis({0.5, 1}), testing::Not(HasSubstr("count"))) << "a factor of all";
}

TEST(Origin, APartsStepFollowsFromItsGradientAndItsMaster) {
  struct Step : MemoryDump {
    Step(double grad, double master) : MemoryDump("d") {
      add({0, -1, Phase::backward, "m", "grad", "weight", 0}, float32({grad}));
      add({0, -1, Phase::optimizer, "m", "state", "weight.exp_avg", 0}, float32({grad}));
      add({0, -1, Phase::optimizer, "m", "state", "weight.master", 0}, float32({master}));
      add({0, -1, Phase::optimizer, "m", "param", "weight", 0}, float32({master}));
    }
  };
  const Step reference(1, 1);
  const Report step = diff(Step(1, 2), reference, options());
  ASSERT_EQ(step.findings.size(), 4U);
  EXPECT_EQ(step.findings[2].origin->kind, Kind::created) << "its gradient passed";
  EXPECT_EQ(step.findings[3].origin->root, step.findings[2].name);
  const Report grad = diff(Step(2, 2), reference, options());
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(grad.findings[i].origin->root, grad.findings[0].name);
}

TEST(Causes, AnotherAttributeIsNamed) {
  const Finding norm = at(compare({.eps = 1e-5}), "norm", "output");
  ASSERT_FALSE(norm.diagnoses.empty());
  EXPECT_EQ(norm.diagnoses[0].cause, Cause::attribute);
  EXPECT_THAT(sentence(norm.diagnoses[0]), HasSubstr("eps = 1e-05, where the reference has eps = 1e-06"));
}

TEST(Causes, AFactorIsNamed) {
  const Finding norm = at(compare({.after_norm = 2}), "norm", "output");
  ASSERT_FALSE(norm.diagnoses.empty());
  EXPECT_EQ(norm.diagnoses[0].cause, Cause::factor);
}

}  // namespace
}  // namespace assay::origin_test
