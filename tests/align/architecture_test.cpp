#include "assay/align/forward/architecture.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace assay::align::architecture_test {
namespace {

std::int64_t total(const std::string& model) {
  std::int64_t size = 0;
  for (const Parameter& p : parameters(load_model(model))) size += p.size;
  return size;
}

// The sums of the shapes in the published checkpoints' safetensors; DeepSeek-V3's without the embedding and
// the head that its layer 61 repeats.
TEST(Architecture, HasAsManyParametersAsThePublishedCheckpoints) {
  const std::string configs = std::string(ASSAY_TEST_DATA) + "/models/";
  EXPECT_EQ(total(configs + "mixtral-8x7b.json"), 46'702'792'704);
  EXPECT_EQ(total(configs + "qwen3-30b-a3b.json"), 30'532'122'624);
}

TEST(Architecture, ATiedHeadIsTheEmbedding) {
  Model model = load_model("qwen3-moe-tiny");
  const auto untied = parameters(model);
  model.tied_embeddings = true;
  const auto tied = parameters(model);
  EXPECT_EQ(tied.size() + 1, untied.size());
  EXPECT_EQ(std::ranges::count(tied, "lm_head.weight", &Parameter::name), 0);
  EXPECT_EQ(tied.front().met_by_token, model.vocabulary * model.hidden);
}

TEST(Architecture, EveryPresetsCallsFitTheirOperators) {
  for (const std::string_view name : model_names()) {
    for (const ModuleCall& call : forward_calls(load_model(std::string(name)), {2, 24}))
      EXPECT_NO_THROW(accumulations(call)) << name << " " << call.module << " " << call.op->name;
  }
}

std::int64_t count(const std::vector<ModuleCall>& calls, std::string_view parameter,
                   std::string_view output) {
  for (const ModuleCall& call : calls) {
    if (std::ranges::find(call.inputs, parameter, &CallInput::parameter) == call.inputs.end()) continue;
    for (const Accumulation& a : accumulations(call)) {
      if (a.output == output) return a.count;
    }
  }
  return -1;
}

TEST(Architecture, TermsAreThoseOfTheFullModel) {
  const auto calls = forward_calls(load_model("telechat3-105b"), {1, 4096});
  EXPECT_EQ(count(calls, "model.layers.3.self_attn.q_b_proj.weight", "y"), 1536);
  EXPECT_EQ(count(calls, "model.layers.3.self_attn.q_b_proj.weight", "grad_x"), 32 * 192);
  EXPECT_EQ(count(calls, "model.layers.3.self_attn.q_b_proj.weight", "grad_w"), 4096);
  // 4096 tokens to 4 of 192 experts each: the busiest gets 86 if they are spread evenly
  EXPECT_EQ(count(calls, "model.layers.3.mlp.experts.*.up_proj.weight", "grad_w"), 86);
  EXPECT_EQ(count(calls, "lm_head.weight", "grad_x"), 131072);
}

}  // namespace
}  // namespace assay::align::architecture_test
