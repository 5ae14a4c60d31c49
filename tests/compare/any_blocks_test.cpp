// The gradient of experts' weights in fp8, where an expert has tokens of two micro-batches in one call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "assay/compare/calls/fp8_operands.h"
#include "assay/compare/diff.h"
#include "assay/operators/engine/golden.h"
#include "memory_dump.h"

namespace assay::any_blocks_test {
namespace {

constexpr std::int64_t in = 24, out = 16, experts = 2;
using Values = std::vector<double>;
using Sizes = std::vector<std::int64_t>;

Tensor random(const Shape& shape, unsigned seed, double scale = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal(0, scale);
  Values values(static_cast<std::size_t>(element_count(shape)));
  for (double& v : values) v = normal(bits);
  return Tensor::from_values(DType::float32, shape, values);
}

Tensor result(const char* output, std::vector<NamedTensor> inputs, bool fp8) {
  if (fp8) take_fp8(output, inputs, {}, TokenBlocks::gathered);
  const Operator& op = find_operator("grouped_matmul");
  const Tensor t = output_named(compute_golden(op, inputs, {}, Level::fp64, output), output);
  return Tensor::from_values(DType::float32, t.shape(), t.values());
}

Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

// Of both micro-batches the rows of each expert.
Tensor by_expert(const Tensor& a, const Sizes& of_a, const Tensor& b, const Sizes& of_b) {
  Values values;
  const std::int64_t width = a.shape().back();
  std::int64_t at_a = 0, at_b = 0;
  const auto take = [&](const Tensor& t, std::int64_t& at, std::int64_t rows) {
    for (std::int64_t i = at * width; i < (at + rows) * width; ++i) values.push_back(t.value(i));
    at += rows;
  };
  for (std::size_t e = 0; e < of_a.size(); ++e) {
    take(a, at_a, of_a[e]);
    take(b, at_b, of_b[e]);
  }
  return Tensor::from_values(DType::float32, {std::ssize(values) / width, width}, values);
}

struct Experts : MemoryDump {
  Experts(int ranks, bool fp8, const std::function<void(Values&)>& fault = {}) : MemoryDump("d") {
    world_size = ranks;
    const auto put = [&](Phase phase, const char* slot, const char* arg, std::int64_t mb, const Tensor& t) {
      add({0, mb, phase, "mlp.experts.*.up_proj", slot, arg, 0}, t).op = "grouped_matmul";
    };
    const Tensor w = random({experts, in, out}, 1, 0.1);
    const Sizes sizes[] = {{100, 156}, {140, 116}};
    put(Phase::forward, "param", "weight", -1, w);
    std::vector<Tensor> x, g;
    Values sum(static_cast<std::size_t>(w.size()), 0);
    for (unsigned mb = 0; mb < 2; ++mb) {
      x.push_back(random({256, in}, 10 + mb));
      g.push_back(random({256, out}, 20 + mb));
      const std::vector<NamedTensor> inputs = {{"x", x[mb]},
                                               {"w", w},
                                               {"group_sizes", Tensor::from_indices({experts}, sizes[mb])},
                                               {"grad_y", g[mb]}};
      put(Phase::forward, "input", "x", mb, x[mb]);
      put(Phase::forward, "input", "group_sizes", mb, inputs[2].tensor);
      put(Phase::forward, "output", "y", mb, result("y", inputs, fp8));
      put(Phase::backward, "grad_output", "y", mb, g[mb]);
      sum = plus(sum, result("grad_w", inputs, fp8).values());
    }
    if (fp8 && ranks > 1) {
      const Tensor both = Tensor::from_indices({experts}, Sizes{240, 272});
      const auto joined = [&](const std::vector<Tensor>& t) {
        return by_expert(t[0], sizes[0], t[1], sizes[1]);
      };
      sum = result("grad_w", {{"x", joined(x)}, {"w", w}, {"group_sizes", both}, {"grad_y", joined(g)}}, true)
                .values();
    }
    if (fault) fault(sum);
    put(Phase::backward, "grad", "weight", -1, Tensor::from_values(DType::float32, w.shape(), sum));
  }
};

Finding gradient(const Experts& actual, const Experts& reference, bool end_to_end = false) {
  DiffOptions options;
  options.policies.push_back(load_policy("torch"));
  options.end_to_end = end_to_end;
  for (const Finding& f : diff(actual, reference, options).findings) {
    if (f.id.slot == "grad") return f;
  }
  throw Error("no gradient");
}

void scale(Values& v, double factor) {
  for (double& x : v) x *= factor;
}

TEST(AnyBlocks, OfSeveralMicroBatchesAreRounding) {
  const Finding f = gradient(Experts(2, true), Experts(1, true));
  EXPECT_EQ(f.verdict, Verdict::exempt) << f.reason;
  ASSERT_TRUE(f.exemption) << f.reason;
  EXPECT_EQ(f.exemption->kind, Exemption::Kind::order_of_blocks);
  EXPECT_LE(f.exemption->measured, 1);
  EXPECT_GT(f.exemption->measured, 0.05) << "a bound that tells something";
  EXPECT_EQ(gradient(Experts(2, true), Experts(1, true), true).verdict, Verdict::failed);
}

TEST(AnyBlocks, HideNoFault) {
  const std::pair<const char*, std::function<void(Values&)>> faults[] = {
      {"zeros", [](Values& v) { scale(v, 0); }},
      {"a row of zeros", [](Values& v) { std::fill_n(v.begin() + 2 * out, out, 0); }},
      {"an expert's is missing", [](Values& v) { std::fill_n(v.begin(), in * out, 0); }},
      {"twice", [](Values& v) { scale(v, 2); }},
      {"two experts' are swapped", [](Values& v) { std::rotate(v.begin(), v.begin() + in * out, v.end()); }},
      {"a row and a half", [](Values& v) {
         for (std::int64_t i = 0; i < out; ++i) v[static_cast<std::size_t>(i)] *= 1.5;
       }}};
  for (const auto& [what, fault] : faults) {
    for (const bool end_to_end : {false, true}) {
      const Finding f = gradient(Experts(2, true, fault), Experts(1, true), end_to_end);
      EXPECT_EQ(f.origin->kind, Origin::Kind::created) << what << ": " << f.origin->reason;
    }
  }
  const auto by_a_twentieth = [](Values& v) { scale(v, 1.05); };
  EXPECT_EQ(gradient(Experts(2, true, by_a_twentieth), Experts(1, true)).origin->kind, Origin::Kind::created);
}

// What is no fp8 is not judged by its blocks, whatever the ranks.
TEST(AnyBlocks, AreOfFp8Alone) {
  for (const int ranks : {1, 2}) {
    const Finding f =
        gradient(Experts(2, false, [](Values& v) { scale(v, 1.05); }), Experts(ranks, false), true);
    EXPECT_EQ(f.origin->kind, Origin::Kind::created) << f.origin->reason;
    for (const Diagnosis& d : f.diagnoses)
      EXPECT_THAT(sentence(d), testing::Not(testing::HasSubstr("float8")));
  }
}

}  // namespace
}  // namespace assay::any_blocks_test
