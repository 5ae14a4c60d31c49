// Kernels that were called with another attribute: a row for each mistake that check names.
#include <optional>

#include "assay/compare/calls/case_writer.h"
#include "check_case.h"
#include "recorded_pair.h"

namespace assay::check_attributes_test {
namespace {

struct Mistake {
  const char* op;
  const char* output;
  std::vector<std::pair<const char*, Shape>> inputs;
  Attributes right, wrong;
  const char* attribute;
  std::optional<double> value = {}, reference_value = {};
};

const Shape heads = {1, 4, 12, 16};
const std::vector<std::pair<const char*, Shape>> qkv = {{"q", heads}, {"k", heads}, {"v", heads}};

std::vector<Mistake> mistakes() {
  return {
      {"attention",
       "out",
       qkv,
       {{"is_causal", true}},
       {{"is_causal", true}, {"scale", 0.0625}},
       "scale",
       0.0625},
      {"attention", "out", qkv, {{"scale", 0.7}}, {{"scale", 0.35}}, "scale", 0.35, 0.7},
      {"attention", "out", qkv, {{"softcap", 2.0}}, {}, "softcap", 0, 2},
      {"attention", "out", qkv, {{"window_size", std::vector<double>{3, 0}}}, {}, "window_size"},
      {"geglu",
       "y",
       {{"gate", {16, 32}}, {"up", {16, 32}}},
       {{"approximate", "none"}},
       {{"approximate", "tanh"}},
       "approximate"},
      {"cross_entropy",
       "grad_logits",
       {{"logits", {8, 40}}, {"target_probs", {8, 40}}, {"grad_y", {}}},
       {},
       {{"label_smoothing", 0.1}},
       "label_smoothing",
       0.1,
       0},
      {"cross_entropy",
       "grad_logits",
       {{"logits", {8, 40}}, {"target_probs", {8, 40}}, {"grad_y", {}}},
       {{"label_smoothing", 0.15}},
       {{"label_smoothing", 0.3}},
       "label_smoothing",
       0.3,
       0.15},
      {"router_topk",
       "weights",
       {{"logits", {16, 12}}},
       {{"top_k", 3}, {"score", "sigmoid"}},
       {{"top_k", 3}, {"score", "sigmoid"}, {"normalize", false}},
       "normalize",
       0,
       1},
      {"router_topk",
       "weights",
       {{"logits", {16, 12}}},
       {{"top_k", 4}, {"groups", std::vector<double>{4, 2}}, {"group_top", 2}},
       {{"top_k", 4}, {"groups", std::vector<double>{4, 2}}, {"group_top", 1}},
       "group_top",
       1,
       2},
  };
}

class CheckAttributes : public testing::TestWithParam<std::size_t> {};

TEST_P(CheckAttributes, NamesTheOneThatIsAnother) {
  const Mistake m = mistakes()[GetParam()];
  const Operator& op = find_operator(m.op);
  std::vector<NamedTensor> inputs;
  for (const auto& [name, shape] : m.inputs) {
    Tensor t = normal_tensor(DType::float32, shape, 1 + inputs.size());
    if (std::string_view(name) == "target_probs") {
      Values v = t.values();
      for (double& x : v) x = std::abs(x) / 40;
      t = Tensor::from_values(DType::float32, shape, v);
    }
    inputs.push_back({name, t});
  }
  const Tensor y = output_named(compute_golden(op, inputs, m.wrong, Level::fp64, m.output), m.output);
  const Scratch scratch;
  write_case({.op = &op,
              .name = "case",
              .attributes = m.right,
              .inputs = inputs,
              .outputs = {{m.output, Tensor::from_values(DType::float32, y.shape(), y.values())}},
              .with_outputs = true},
             scratch.path() / "case");
  const Finding f = check({scratch.path() / "case"}, check_options()).findings.at(0);
  ASSERT_EQ(f.verdict, Verdict::failed);
  ASSERT_FALSE(f.diagnoses.empty());
  EXPECT_TRUE(agrees(
      f.diagnoses.front(),
      {Cause::attribute,
       {.op = m.op, .attribute = m.attribute, .value = m.value, .reference_value = m.reference_value}}))
      << sentence(f.diagnoses.front());
}
INSTANTIATE_TEST_SUITE_P(Rows, CheckAttributes, testing::Range(std::size_t{0}, mistakes().size()));

}  // namespace
}  // namespace assay::check_attributes_test
