// Mistakes that no element shows, and orders of equal elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "assay/compare/check.h"
#include "assay/operators/engine/generate.h"

namespace assay::check_whole_test {
namespace {

using testing::HasSubstr;

CheckOptions options() {
  CheckOptions o;
  o.policies = {load_policy("derived")};
  return o;
}

Tensor float32(const Tensor& t, double factor = 1) {
  std::vector<double> values = t.values();
  for (double& v : values) v *= factor;
  return Tensor::from_values(DType::float32, t.shape(), values);
}

// One output of these inputs, made with other attributes or times a factor, judged by the right ones.
Finding judged(std::string_view op, std::vector<NamedTensor> inputs, const Attributes& right,
               const Attributes& made, std::string_view output, double factor = 1) {
  const Operator& o = find_operator(op);
  const auto all = compute_golden(o, inputs, made, Level::fp64);
  const Tensor& t = output_named(all, output);
  const MadeCall call{&o, std::move(inputs), {{std::string(output), float32(t, factor)}}, right};
  return check(call, options()).findings.front();
}

std::vector<NamedTensor> normals(std::string_view op, const char* sizes) {
  auto inputs = generate_inputs(find_operator(op), parse_call({sizes}), Fill::random, DType::float32, 1);
  for (NamedTensor& t : inputs) {
    if (t.name != "x") continue;
    std::vector<double> x = t.tensor.values();
    for (double& v : x) v /= 5;  // of a variance near 1: epsilon counts
    t.tensor = Tensor::from_values(DType::float32, t.tensor.shape(), x);
  }
  return inputs;
}

TEST(CheckWhole, AnotherEpsilonIsSeenAndNamed) {
  const Attributes right = {{"eps", 1e-5}}, wrong = {{"eps", 1e-6}};
  for (const char* op : {"layer_norm", "rms_norm"}) {
    const auto inputs = normals(op, "N=32,C=4096");
    EXPECT_EQ(judged(op, inputs, right, right, "y").verdict, Verdict::passed) << op;
    const Finding f = judged(op, inputs, right, wrong, "y");
    EXPECT_EQ(f.verdict, Verdict::failed) << op;
    EXPECT_THAT(f.reason, HasSubstr("each element is within its bound, but as a whole")) << op;
    ASSERT_FALSE(f.diagnoses.empty()) << op;
    EXPECT_EQ(f.diagnoses.front().cause, Cause::attribute) << op;
    EXPECT_EQ(f.diagnoses.front().parameters.value, 1e-6) << op;
  }
}

TEST(CheckWhole, AFactorOfAllElementsFails) {
  for (const char* op : {"softmax", "matmul", "gelu", "layer_norm", "silu", "add"}) {
    const Operator& o = find_operator(op);
    const Example example = o.name == "matmul" ? Example{"A=,M=64,K=2048,B=,N=64"} : o.examples.front();
    const auto inputs = generate_inputs(o, parse_call(example), Fill::random, DType::float32, 1);
    EXPECT_EQ(judged(op, inputs, {}, {}, "y").verdict, Verdict::passed) << op;
    EXPECT_EQ(judged(op, inputs, {}, {}, "y", 1 + 1e-5).verdict, Verdict::failed) << op;
  }
}

Finding tied(const char* op, const Attributes& attributes, const char* output, Tensor made,
             const Shape& grad) {
  const Operator& o = find_operator(op);
  std::vector<double> g(static_cast<std::size_t>(element_count(grad)));
  for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(i + 1);
  const std::vector<double> x = {1, 1, 0, 1};
  std::vector<NamedTensor> inputs = {{"x", Tensor::from_values(DType::float32, {4}, x)}};
  if (std::string_view(op) != "argmax")
    inputs.push_back({"grad_y", Tensor::from_values(DType::float32, grad, g)});
  const MadeCall call{&o, inputs, {{output, std::move(made)}}, attributes};
  return check(call, options()).findings.front();
}

TEST(CheckWhole, EqualElementsMayComeInAnyOrder) {
  const auto index = [](std::vector<std::int64_t> i) { return Tensor::from_indices({std::ssize(i)}, i); };
  const auto position = [](std::int64_t i) { return Tensor::from_indices({}, std::vector{i}); };
  const auto values = [](std::vector<double> v) { return Tensor::from_values(DType::float32, {4}, v); };
  const Finding f = tied("sort", {}, "index", index({2, 3, 0, 1}), {4});
  EXPECT_EQ(f.verdict, Verdict::passed);
  EXPECT_THAT(f.notes.front(), HasSubstr("a legal tie"));
  EXPECT_EQ(tied("sort", {}, "grad_x", values({3, 4, 1, 2}), {4}).verdict, Verdict::passed);
  EXPECT_EQ(tied("sort", {}, "index", index({2, 3, 3, 1}), {4}).verdict, Verdict::failed) << "one twice";
  EXPECT_EQ(tied("sort", {}, "index", index({3, 2, 0, 1}), {4}).verdict, Verdict::failed) << "not in order";
  EXPECT_EQ(tied("sort", {}, "index", index({2, 3, 0, 4}), {4}).verdict, Verdict::failed) << "beyond the end";
  EXPECT_EQ(tied("sort", {}, "grad_x", values({3, 4, 2, 1}), {4}).verdict, Verdict::failed);
  EXPECT_EQ(tied("sort", {{"stable", true}}, "index", index({2, 3, 0, 1}), {4}).verdict, Verdict::failed);
  EXPECT_EQ(tied("top_k", {{"k", 2}}, "index", index({3, 1}), {2}).verdict, Verdict::passed);
  EXPECT_EQ(tied("top_k", {{"k", 2}}, "grad_x", values({0, 2, 0, 1}), {2}).verdict, Verdict::passed);
  EXPECT_EQ(tied("top_k", {{"k", 2}}, "grad_x", values({0, 2, 1, 0}), {2}).verdict, Verdict::failed);
  EXPECT_EQ(tied("argmax", {{"dim", 0}}, "index", position(3), {}).verdict, Verdict::passed);
  EXPECT_EQ(tied("argmax", {{"dim", 0}}, "index", position(2), {}).verdict, Verdict::failed);
  EXPECT_EQ(tied("reduce_max", {{"dim", 0}}, "grad_x", values({0, 0, 0, 1}), {}).verdict, Verdict::passed);
  EXPECT_EQ(tied("reduce_max", {{"dim", 0}}, "grad_x", values({0, 0, 1, 0}), {}).verdict, Verdict::failed);
}

}  // namespace
}  // namespace assay::check_whole_test
