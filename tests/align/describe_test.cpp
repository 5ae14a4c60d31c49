#include "assay/align/forward/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::align::describe_test {
namespace {

using testing::HasSubstr;

TEST(Describe, SaysWhatTheReportSays) {
  const std::string text = describe(load_model("telechat3-105b"), {{1, 4096}, load_policy("telechat3")});
  // 105B with its layer of multi-token prediction, as the report's name for it
  EXPECT_THAT(text, HasSubstr("telechat3-105b: 102.3 billion parameters"));
  EXPECT_THAT(text, HasSubstr("1 more, with 2.3 billion parameters, for multi-token prediction"));
  EXPECT_THAT(text, HasSubstr("MLA, 32 heads of 128 + 64 and 128"));
}

TEST(Describe, TellsLayersThatAreAlikeOnce) {
  const std::string text =
      describe(load_model("deepseek-v3"), {{1, 64}, load_policy("telechat3"), DType::float32});
  EXPECT_THAT(text, HasSubstr("model.layers.0-2.mlp.gate_proj.weight"));
  EXPECT_THAT(text, HasSubstr("model.layers.3-61.mlp.experts.*.down_proj.weight"));
  EXPECT_THAT(text, HasSubstr("1 x 64 tokens"));
}

TEST(Describe, GivesEachCountItsRow) {
  const std::string text = describe(load_model("qwen3-moe"), {{1, 4096}, load_policy("telechat3")});
  EXPECT_THAT(text, HasSubstr("y 2048 (0.0321)  grad_x 4096 (0.0321)"));
  EXPECT_THAT(text, HasSubstr("grad_x 151936 (0.0327)"));
  const std::string none =
      describe(load_model("qwen3-moe"), {{1, 4096}, load_policy("torch"), DType::float8_e5m2});
  EXPECT_THAT(none, HasSubstr("y 2048 (no rule)"));
}

}  // namespace
}  // namespace assay::align::describe_test
