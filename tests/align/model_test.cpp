#include "assay/align/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "../dumps/scratch.h"
#include "assay/align/model/huggingface_config.h"
#include "assay/align/model/model_toml.h"
#include "assay/golden/error.h"

namespace assay::align::model_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string configs = std::string(ASSAY_TEST_DATA) + "/models/";

TEST(Model, EveryPresetIsWholeAndComesBackFromItsText) {
  for (const std::string_view name : model_names()) {
    const Model model = load_model(std::string(name));
    EXPECT_EQ(model.name, name);
    EXPECT_FALSE(model.source.empty()) << name;
    const std::string text = to_toml(model);
    EXPECT_EQ(to_toml(model_from_toml(text, "text")), text);
  }
}

// What both say of the arithmetic is the same: only names and sources differ.
void expect_same_model(Model a, Model b) {
  for (Model* m : {&a, &b}) m->name = m->source = "";
  EXPECT_EQ(to_toml(a), to_toml(b));
}

TEST(Model, APresetIsThePublishedConfiguration) {
  Model deepseek = load_model(configs + "deepseek-v3.json");
  EXPECT_EQ(deepseek.losses.balance_weight, 1e-3) << "the configuration's; the report trained with 1e-4";
  deepseek.losses.balance_weight = 1e-4;
  expect_same_model(load_model("deepseek-v3"), deepseek);
  Model qwen = load_model(configs + "qwen3-30b-a3b.json");
  EXPECT_EQ(qwen.losses.balance, BalanceLoss::none) << "its configuration does not ask for router logits";
  qwen.losses.balance = BalanceLoss::micro_batch;
  Model preset = load_model("qwen3-moe");
  preset.dense_ffn = qwen.dense_ffn;  // of no layer
  expect_same_model(preset, qwen);
}

TEST(Model, OfHuggingFaceWhatIsNotReplayedIsRefused) {
  const std::string yarn =
      R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768, )";
  const auto reading = [](const std::string& change) {
    std::ifstream file(configs + "qwen3-30b-a3b.json");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const std::string key = change.substr(0, change.find(':'));
    const std::size_t begin = text.find(key), end = text.find_first_of(",\n", begin);
    text.replace(begin, end - begin, change);
    return [text] { model_from_huggingface(text, "config.json"); };
  };
  EXPECT_THAT(reading("\"model_type\": \"llama\""),
              ThrowsMessage<Error>(AllOf(HasSubstr("'model_type' is 'llama'"), HasSubstr("qwen3_moe"))));
  EXPECT_THAT(reading("\"hidden_act\": \"gelu\""),
              ThrowsMessage<Error>(HasSubstr("'hidden_act' is gelu; expected silu")));
  EXPECT_THAT(reading("\"rope_scaling\": {\"type\": \"linear\"}"),
              ThrowsMessage<Error>(HasSubstr("linear; expected yarn")));
  EXPECT_THAT(
      reading("\"rope_scaling\": " + yarn + "\"mscale\": 0.7}"),
      ThrowsMessage<Error>(HasSubstr("'rope_scaling': expected mscale and mscale_all_dim, or neither")));
  EXPECT_THAT(
      reading("\"rope_scaling\": " + yarn + "\"mscale_all_dim\": 1}"),
      ThrowsMessage<Error>(HasSubstr("'rope_scaling': expected mscale and mscale_all_dim, or neither")));
  EXPECT_THAT(reading("\"rope_scaling\": " + yarn + "\"mscale\": 1, \"mscale_all_dim\": 1}"),
              ThrowsMessage<Error>(HasSubstr("mscale_all_dim is 1; expected none")));
  EXPECT_THAT(reading("\"rope_scaling\": " + yarn + "\"truncate\": false}"),
              ThrowsMessage<Error>(HasSubstr("'truncate' is false; expected true")));
  EXPECT_THAT(reading("\"rope_scaling\": " + yarn + "\"partial_rotary_factor\": 0.5}"),
              ThrowsMessage<Error>(HasSubstr("'partial_rotary_factor' is 0.5; expected 1")));
  EXPECT_THAT(reading("\"output_router_logits\": true"),
              ThrowsMessage<Error>(HasSubstr("'output_router_logits' is true; expected false")));
  EXPECT_THAT(reading("\"decoder_sparse_step\": 2"),
              ThrowsMessage<Error>(HasSubstr("'decoder_sparse_step' is 2")));
  EXPECT_THAT(reading("\"head_dim\": 128, \"attention_dropout\": 0.1"),
              ThrowsMessage<Error>(HasSubstr("'attention_dropout'")));
  EXPECT_THAT(reading("\"num_experts\": \"many\""), ThrowsMessage<Error>(HasSubstr("'num_experts'")));
}

std::string refusal(const std::string& change) {
  const Scratch scratch;
  std::string text = to_toml(load_model("deepseek-v3-tiny"));
  const std::string key = change.substr(0, change.find('=') + 1);
  const std::size_t begin = text.find("\n" + key) + 1;
  if (begin == 0) {
    text = change + "\n" + text;
  } else {
    text.replace(begin, text.find('\n', begin) - begin, change);
  }
  try {
    load_model(scratch.write("model.toml", text).string());
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Model, WhatContradictsItselfIsRefusedInOneSentence) {
  EXPECT_EQ(refusal(""), "");
  EXPECT_THAT(refusal("depth = 4"), HasSubstr("has a key 'depth', which no model has; expected one of"));
  EXPECT_THAT(refusal("layers = 4.5"), HasSubstr("'layers' is 4.5; expected an integer"));
  EXPECT_THAT(refusal("layers = 0"), HasSubstr("'layers' is 0; expected 1 to"));
  EXPECT_THAT(refusal("hidden = \"80\""), HasSubstr("'hidden' is \"80\"; expected an integer"));
  EXPECT_THAT(refusal("kind = \"mqa\""), HasSubstr("expected one of mla, gqa"));
  EXPECT_THAT(refusal("rope_dim = 7"), HasSubstr("'attention.rope_dim' is 7; expected an even number"));
  EXPECT_THAT(refusal("top_k = 33"), HasSubstr("'moe.top_k' is 33; expected 1 to the 32 experts"));
  EXPECT_THAT(refusal("groups = 5"),
              HasSubstr("'moe.groups' is 5; expected groups of equally many of the 32 experts"));
  EXPECT_THAT(refusal("top_groups = 1"), HasSubstr("groups with at least the 8 experts of a token"));
  EXPECT_THAT(refusal("dense_ffn = 0"), HasSubstr("'dense_ffn' is 0; expected at least 1"));
  EXPECT_THAT(refusal("norm_eps = nan"), HasSubstr("'norm_eps'"));
  EXPECT_THAT(refusal("layers = = 3"), HasSubstr("expected a model in TOML"));
}

TEST(Model, AnUnknownNameListsThePresets) {
  EXPECT_THAT([] { load_model("telechat4"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'telechat4' is no model"), HasSubstr("telechat3-105b"))));
}

}  // namespace
}  // namespace assay::align::model_test
