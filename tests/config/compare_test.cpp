// Configurations of the same training in the words of different frameworks agree; each planted difference is
// found, with both values, where they stand, and what it does.
#include "assay/config/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/golden/error.h"
#include "given.h"

namespace assay::config::compare_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::ThrowsMessage;

Comparison compared(const std::string& a, const std::string& b,
                    const std::vector<std::string>& accepted = {}) {
  return compare(open_side(a), open_side(b), accepted);
}

std::vector<std::string> keys_of(const Comparison& c, Effect effect) {
  std::vector<std::string> all;
  for (const Row& row : c.rows) {
    if (row.effect == effect && !row.accepted) all.push_back(row.key);
  }
  return all;
}

TEST(Config, MegatronAndMindFormersAreOneTraining) {
  const Comparison c = compared(sample("megatron.sh"), sample("mindformers.yaml"));
  EXPECT_THAT(keys_of(c, Effect::numbers),
              ElementsAre("rms_norm_eps", "hidden_dropout", "params_dtype", "data_seed"));
  EXPECT_THAT(keys_of(c, Effect::unknown), IsEmpty());
  EXPECT_THAT(keys_of(c, Effect::order),
              testing::IsSupersetOf({"tensor_model_parallel_size", "pipeline_model_parallel_size"}));
  const Row& row = *find_row(c, "rms_norm_eps");
  EXPECT_EQ(row.a.value, "1e-06");
  EXPECT_THAT(row.a.place, EndsWith("megatron.sh:34"));
  EXPECT_EQ(row.b.value, "1e-05");
  EXPECT_THAT(row.b.place, EndsWith("mindformers.yaml:63"));
  EXPECT_THAT(row.does, HasSubstr("all tensors from the first norm on"));
  EXPECT_EQ(find_row(c, "hidden_dropout")->a.place, "default of Megatron-LM");
  EXPECT_GT(c.equal, 35U);
  EXPECT_TRUE(c.differs());
  EXPECT_FALSE(compared(sample("megatron.sh"), sample("mindformers.yaml"),
                        {"rms_norm_eps", "hidden_dropout", "*_dtype", "data_seed"})
                   .differs());
}

TEST(Config, MegatronAndHuggingFaceAreOneModel) {
  const Comparison c = compared(sample("megatron.sh"), sample("config.json"));
  EXPECT_THAT(keys_of(c, Effect::numbers), ElementsAre("rms_norm_eps", "hidden_dropout"));
  EXPECT_GT(c.equal, 25U);
}

TEST(Config, TorchtitanAndDeepSpeedAreOneOptimizer) {
  const Comparison c = compared(sample("torchtitan.toml"), sample("deepspeed.json"));
  EXPECT_THAT(keys_of(c, Effect::numbers), ElementsAre("lr_scheduler_type", "adam_beta2"));
  EXPECT_EQ(find_row(c, "adam_beta2")->a.place, "default of torchtitan");
  EXPECT_THAT(find_row(c, "adam_beta2")->b.place, EndsWith("deepspeed.json: optimizer.params.betas[1]"));
  EXPECT_THAT(keys_of(c, Effect::unknown), ElementsAre("clip_grad"));  // "auto"
}

TEST(Config, MegatronsTestsKeepOptionsInYaml) {
  const Scratch folder;
  const std::string
      yaml = folder.write("model_config.yaml",
                          "ENV_VARS:\n  NCCL_ALGO: Ring\n  CUBLAS_WORKSPACE_CONFIG: :4096:8\nMODEL_ARGS:\n  "
                          "--num-layers: 12\n"
                          "  --bf16: true\n  --load: ${CHECKPOINT}\n  --disable-bias-linear: true\n"),
      script =
          folder.write("run.sh",
                       "NCCL_ALGO=Ring CUBLAS_WORKSPACE_CONFIG=:4096:8 train --num-layers 12 --bf16 --load x "
                       "--disable-bias-linear\n");
  const Comparison c = compared(yaml, script);
  EXPECT_THAT(keys_of(c, Effect::numbers), IsEmpty());
  EXPECT_THAT(keys_of(c, Effect::unknown), ElementsAre("load"));
  EXPECT_THAT(keys_of(c, Effect::order), IsEmpty());
}

TEST(Config, AListOfAllArgumentsAgreesWithItsScript) {
  const Comparison c = compared(sample("megatron.sh"), sample("printed.log"));
  EXPECT_THAT(keys_of(c, Effect::numbers),
              ElementsAre("hidden_dropout"));  // 0.1 is the default, 0 was printed
  EXPECT_THAT(keys_of(c, Effect::unknown), IsEmpty());
}

TEST(Config, AFileAgreesWithItself) {
  for (const char* file :
       {"megatron.sh", "mindformers.yaml", "config.json", "torchtitan.toml", "printed.log"}) {
    const Comparison c = compared(sample(file), sample(file));
    EXPECT_THAT(c.rows, IsEmpty()) << file << ": " << c.rows.front().key;
    EXPECT_FALSE(c.differs());
    EXPECT_THAT(c.only_a, IsEmpty()) << file;
  }
}

// One text replaced in a file: the key that it is, and no other.
void expect_key(const std::string& file, const std::string& from, const std::string& to,
                const std::string& key, Effect effect) {
  const Scratch folder;
  std::ifstream in(sample(file));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const Comparison c = compared(sample(file), folder.write(file, text));
  EXPECT_THAT(keys_of(c, effect), testing::Contains(key)) << from;
  EXPECT_EQ(c.differs(), effect == Effect::numbers || effect == Effect::unknown) << from;
}

TEST(Config, EachKindOfDifferenceIsNamed) {
  const auto number = Effect::numbers;
  expect_key("megatron.sh", "--swiglu", "", "hidden_act", number);
  expect_key("megatron.sh", "--untie-embeddings-and-output-weights", "", "tie_word_embeddings", number);
  expect_key("megatron.sh", "[0]*1+[1]*44", "[0]*3+[1]*42", "first_k_dense_replace", number);
  expect_key("megatron.sh", "sigmoid", "softmax", "scoring_func", number);
  expect_key("megatron.sh", "--attention-dropout 0.0", "", "attention_dropout", number);
  expect_key("megatron.sh", "--bf16", "--fp16", "compute_dtype", number);
  expect_key("megatron.sh", "--fp32-residual-connection", "", "fp32_residual_connection", number);
  expect_key("megatron.sh", "--qk-layernorm", "--apply-layernorm-1p", "qk_layernorm", number);
  expect_key("megatron.sh", "adam-beta2 0.95", "adam-beta2 0.95 --optimizer sgd", "optimizer", number);
  expect_key("megatron.sh", "--num-experts 192", "", "n_routed_experts", number);
  expect_key("megatron.sh", "TP=2", "TP=4", "tensor_model_parallel_size", Effect::order);
  expect_key("megatron.sh", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree", "NCCL_ALGO", Effect::order);
  expect_key("megatron.sh", "--log-interval 1", "--log-interval 2", "log_interval", Effect::nothing);
  expect_key("megatron.sh", "--bf16", "--bf16 --new-option 3", "new_option", Effect::unknown);
  expect_key("megatron.sh", "/data/corpus", "/data/other", "data_path", Effect::unknown);
  expect_key("mindformers.yaml", "routed_scaling_factor: 2.8", "routed_scaling_factor: 2.5",
             "routed_scaling_factor", number);
  expect_key("mindformers.yaml", "norm_topk_prob: True", "norm_topk_prob: False", "norm_topk_prob", number);
  expect_key("mindformers.yaml", "type: AdamW", "type: AdamWeightDecay", "optimizer", number);
  expect_key("mindformers.yaml", "gradients_mean: False", "gradients_mean: True", "gradients_mean", number);
  expect_key("mindformers.yaml", "micro_batch_num 8", "micro_batch_num 16", "global_batch_size", number);
  expect_key("mindformers.yaml", "use_clip_grad: True", "use_clip_grad: False", "clip_grad", number);
  expect_key("mindformers.yaml", "deterministic: \"ON\"", "deterministic: \"OFF\"", "deterministic",
             Effect::order);
  expect_key("config.json", "\"rope_theta\": 10000.0", "\"rope_theta\": 1000000", "rope_theta", number);
  expect_key("config.json", "\"q_lora_rank\": 1536", "\"q_lora_rank\": null", "q_lora_rank", number);
  expect_key("config.json", "\"rope_scaling\": null",
             "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}", "rope_type", number);
  expect_key("config.json", "\"rope_scaling\": null",
             "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40}", "rope_scaling.factor", number);
  expect_key("torchtitan.toml", "lr = 2.0e-4", "lr = 3.0e-4", "learning_rate", number);
  expect_key("deepspeed.json", "\"type\": \"Adam\", \"params\": {",
             "\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false,", "optimizer", number);
}

TEST(Config, TheNameOfTheOptimizerIsNotWhatItDoes) {
  const Scratch folder;
  const std::string adam =
                        folder.write("a.json", R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})"),
                    adamw =
                        folder.write("b.json", R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}})");
  EXPECT_THAT(compared(adam, adamw).rows, IsEmpty());  // DeepSpeed's Adam decouples the decay
}

TEST(Config, WhatAModelImpliesIsCompared) {
  const Scratch folder;
  const std::string qwen =
      R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": 128, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": true})";
  const std::string options =
      "train --hidden-size 2048 --num-attention-heads 32 --num-experts 8 --qk-layernorm";
  const std::string json = folder.write("q.json", qwen);
  // Megatron-LM's heads are hidden / heads wide unless it is told.
  const Comparison narrow = compared(json, folder.write("a.sh", options));
  ASSERT_NE(find_row(narrow, "head_dim"), nullptr);
  EXPECT_EQ(find_row(narrow, "head_dim")->b.value, "64");
  EXPECT_EQ(find_row(narrow, "norm_topk_prob"), nullptr);  // softmax of the chosen: they sum to 1
  EXPECT_EQ(find_row(compared(json, folder.write("b.sh", options + " --kv-channels 128")), "head_dim"),
            nullptr);
  const Comparison before = compared(json, folder.write("c.sh", options + " --moe-router-pre-softmax"));
  ASSERT_NE(find_row(before, "norm_topk_prob"), nullptr);
  EXPECT_EQ(find_row(before, "norm_topk_prob")->b.value, "false");
  ASSERT_NE(find_row(compared(json, folder.write("d.sh", "train --hidden-size 2048 --num-experts 8")),
                     "qk_layernorm"),
            nullptr);
}

TEST(Config, FilesOfOneFolderThatDoNotAgreeAreADifference) {
  const Scratch folder;
  folder.write("a/run.sh", "train --norm-epsilon 1e-5 --num-layers 2 --hidden-size 8\n");
  folder.write("a/config.json", R"({"model_type": "llama", "rms_norm_eps": 1e-6, "num_hidden_layers": 2})");
  folder.write("b/config.json", R"({"model_type": "llama", "rms_norm_eps": 1e-5, "num_hidden_layers": 2})");
  const Comparison c = compared((folder.path() / "a").string(), (folder.path() / "b").string());
  ASSERT_NE(find_row(c, "rms_norm_eps"), nullptr);
  EXPECT_THAT(find_row(c, "rms_norm_eps")->a.value,
              AllOf(HasSubstr("1e-05 in "), HasSubstr(" but 1e-06 in ")));
}

TEST(Config, FilesThatAreNotReadAreNamed) {
  const Scratch folder;
  folder.write("a/config.json", R"({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2})");
  folder.write("a/generation_config.json", R"({"do_sample": true})");
  folder.write("a/readme.md", "--hidden-size 16");
  folder.write("b/run.sh", "train --hidden-size 8 --num-attention-heads 2 --seed 3\n");
  folder.write("b/again.sh", "train --hidden-size 8 --num-attention-heads 2 --seed 4\n");
  const Comparison c = compared((folder.path() / "a").string(), (folder.path() / "b").string());
  EXPECT_THAT(c.passed_over, ElementsAre(EndsWith("a/generation_config.json"), EndsWith("a/readme.md")));
  EXPECT_THAT(to_text(c), HasSubstr("not read: "));
  ASSERT_NE(find_row(c, "seed"), nullptr) << "its files do not agree, whatever the other side says";
}

TEST(Config, WhatIsSaidByOneSideAloneIsListed) {
  const Comparison c = compared(sample("config.json"), sample("megatron.sh"));
  const auto said = [](const std::vector<Single>& all, std::string_view key) {
    return std::ranges::any_of(all, [&](const Single& s) { return s.key == key; });
  };
  EXPECT_TRUE(said(c.only_b, "learning_rate"));
  EXPECT_THAT(to_text(c, true), HasSubstr("learning_rate = 0.0002"));
  EXPECT_THAT(to_text(c), HasSubstr("more (--all)"));
}

TEST(Config, BadFilesAreRefused) {
  const Scratch folder;
  EXPECT_THAT([&] { open_side(folder.write("x.txt", "hello\n")); },
              ThrowsMessage<Error>(HasSubstr("is of no known kind; expected a config.json")));
  EXPECT_THAT([&] { open_side(folder.write("x.json", "{\"a\": 1, \"a\": 2}")); },
              ThrowsMessage<Error>(HasSubstr("stands twice")));
  EXPECT_THAT([&] { open_side(folder.write("y.json", "{\"a\": ")); },
              ThrowsMessage<Error>(HasSubstr("not valid JSON")));
  EXPECT_THAT([&] { open_side((folder.path() / "none").string()); }, ThrowsMessage<Error>(HasSubstr("none")));
  folder.write("empty/readme.md", "");
  EXPECT_THAT([&] { open_side(folder.path() / "empty"); },
              ThrowsMessage<Error>(HasSubstr("has no file of a known kind")));
  EXPECT_THAT([&] { compared(sample("config.json"), sample("config.json"), {"lr"}); },
              ThrowsMessage<Error>(HasSubstr("is accepted and does not differ")));
  const std::string nan = folder.write("nan.json", R"({"model_type": "llama", "rms_norm_eps": NaN})");
  EXPECT_TRUE(compared(nan, nan).differs());
}

TEST(Config, JsonHasBothValues) {
  const Comparison c = compared(sample("torchtitan.toml"), sample("deepspeed.json"));
  EXPECT_THAT(to_json(c), AllOf(HasSubstr("\"key\": \"adam_beta2\""), HasSubstr("\"value\": \"0.999\""),
                                HasSubstr("\"changes\": \"numbers\""),
                                HasSubstr("\"Megatron-LM\": \"megatron/training/arguments.py at ")));
  EXPECT_THAT(to_text(c), HasSubstr("DIFFERS  2 change the numbers, 1 are not known, "));
}

}  // namespace
}  // namespace assay::config::compare_test
