// A micro-batch against Hugging Face's own modeling code in float64: tests/data/replay/make_huggingface.py.
#include <algorithm>

#include "expected.h"

namespace assay::align::huggingface_test {
namespace {

class ModelingCode : public testing::TestWithParam<std::string> {};

TEST_P(ModelingCode, GivesTheSameLogitsLossAndGradients) {
  const nlohmann::json all = expected("expected_huggingface.json")["models"];
  ASSERT_TRUE(all.contains(GetParam()));
  const nlohmann::json& want = all[GetParam()];
  const Model model = load_model(ASSAY_TEST_DATA "/replay/" + GetParam() + ".json");
  on_tape(model, batch, 0, [&](Tape& tape) {
    const std::vector<Loss> losses = forward(tape, model, batch, whole(model)).losses;
    const auto head = std::ranges::find_if(tape.nodes(), [](const Machine::Node& n) {
      return n.op != nullptr && n.op->name == "cross_entropy";
    });
    ASSERT_NE(head, tape.nodes().end());
    expect_sums("logits", tape.tensor(value_named(head->inputs, "logits")), want["logits"]);
    EXPECT_NEAR(total(tape, losses), want["total"].get<double>(), allowed);
    go_back(tape, losses);
    expect_gradients(tape, want["gradients"]);
  });
}

INSTANTIATE_TEST_SUITE_P(Families, ModelingCode, testing::Values("deepseek_v3", "mixtral", "qwen3_moe"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace assay::align::huggingface_test
