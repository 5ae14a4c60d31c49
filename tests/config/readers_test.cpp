// Files of each form, as their frameworks write them, become the same flat lists; what is no such file is
// refused.
#include "assay/config/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "assay/golden/error.h"

namespace assay::config::readers_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const Entry& at(const std::vector<Entry>& entries, std::string_view path) {
  const auto found = std::ranges::find(entries, path, &Entry::path);
  if (found == entries.end()) throw std::runtime_error("no " + std::string(path));
  return *found;
}
std::string text(const std::vector<Entry>& entries, std::string_view path) {
  return at(entries, path).value.text;
}

TEST(Yaml, AnchorsAndMergedMappingsAreExpanded) {
  const auto all =
      read_yaml("a: &n 3\nb: [*n, 1.e-5]\nc: &c {x: 1, y: on}\nd:\n  <<: *c\n  y: 'on'\n", "f.yaml");
  EXPECT_EQ(text(all, "b[0]"), "3");
  EXPECT_EQ(at(all, "b[1]").value.number, 1e-5);
  EXPECT_EQ(text(all, "d.x"), "1");
  EXPECT_EQ(text(all, "d.y"), "on");
  EXPECT_EQ(at(all, "d.y").place, "f.yaml:6");
  EXPECT_EQ(std::ranges::count(all, "d.y", &Entry::path), 1);
}

TEST(Yaml, WhatCouldNeverEndIsRefused) {
  EXPECT_THAT([] { read_yaml("a: &a [*a]", "f"); },
              ThrowsMessage<Error>(HasSubstr("f:1: *a stands for nothing")));
  std::string bombs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n";
  for (int k = 1; k < 9; ++k) {
    std::string items;
    for (int i = 0; i < 10; ++i) items += (i == 0 ? "*a" : ",*a") + std::to_string(k - 1);
    bombs += "a" + std::to_string(k) + ": &a" + std::to_string(k) + " [" + items + "]\n";
  }
  EXPECT_THAT([&] { read_yaml(bombs, "f"); },
              ThrowsMessage<Error>(HasSubstr("more than 100000 values, with its anchors")));
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  EXPECT_THAT([&] { read_yaml(deep, "f"); }, ThrowsMessage<Error>(HasSubstr("nested deeper than 64")));
  EXPECT_THAT([] { read_yaml("a: 1\nb: 2\na: 3\n", "f"); },
              ThrowsMessage<Error>(HasSubstr("f:3: 'a' stands twice, first in line 1")));
  EXPECT_THAT([] { read_yaml("a: 1\n---\nb: 2\n", "f"); },
              ThrowsMessage<Error>(HasSubstr("a second YAML document")));
  EXPECT_THAT([] { read_yaml("a: [1\n", "f"); }, ThrowsMessage<Error>(HasSubstr("expected YAML")));
}

TEST(Yaml, AnchorsOfNothingEndTheirVisits) {
  std::string text = "a0: &a0 []\n";
  for (int k = 1; k < 30; ++k) {
    const std::string before = "*a" + std::to_string(k - 1);
    text += "a" + std::to_string(k) + ": &a" + std::to_string(k) + " [" + before + ", " + before + ", " +
            before + "]\n";
  }
  EXPECT_THAT([&] { read_yaml(text, "f"); },
              ThrowsMessage<Error>(HasSubstr("more than 100000 values, with its anchors")));
}

TEST(Yaml, AnchorsThatAreNestedDeeplyAreRefused) {
  std::string text = "a0: &a0 [1]\n";
  for (int k = 1; k < 200; ++k)
    text += "a" + std::to_string(k) + ": &a" + std::to_string(k) + " [*a" + std::to_string(k - 1) + "]\n";
  EXPECT_THAT([&] { read_yaml(text, "f"); }, ThrowsMessage<Error>(HasSubstr("nested deeper than 64")));
}

TEST(Toml, TablesBecomePaths) {
  const auto all = read_toml("[training]\nseq_len = 4096\nlr = 3e-4\n[a]\nb = [1, {c = 'x'}]\n", "f.toml");
  EXPECT_EQ(text(all, "training.seq_len"), "4096");
  EXPECT_EQ(at(all, "training.lr").place, "f.toml:3");
  EXPECT_EQ(text(all, "a.b[1].c"), "x");
  EXPECT_THAT([] { read_toml("[a\n", "f"); }, ThrowsMessage<Error>(HasSubstr("expected TOML")));
}

TEST(Toml, ATableWithoutANameIsRefused) {
  for (const char* text :
       {"[\n", "a = 1\n[", "[[\n]]\n", "[\x1f]\n", "a = [\n1]\n  [ +]", "s = \"\"\"\n[x\"\"\"\n[.a]\n"})
    EXPECT_THAT([&] { read_toml(text, "f"); }, ThrowsMessage<Error>(HasSubstr("a table without a name")))
        << text;
  EXPECT_EQ(
      text(read_toml("a = [\n  [+1, 2],\n  [{b = '['}],\n]\ns = \"\"\"\n[\n\"\"\"\n[ 'x' ]\ny = 1\n", "f"),
           "x.y"),
      "1");
}

TEST(Script, OptionsAreFoundWhereverTheyStand) {
  const Script s = read_script(
      "export NCCL_ALGO=Ring X=1\nTP=${TP:-\"4\"}\nARGS=(\n  --bf16   # a comment --fp16\n  --num-layers "
      "2\n)\n"
      "MORE=\"--lr 1e-4 \\\n  --split '9, 1' --data-path 1 a 2 b\"\n"
      "CUBLAS_WORKSPACE_CONFIG=:4096:8 torchrun --nproc_per_node 8 train.py ${ARGS[@]} $MORE "
      "--tensor-model-parallel-size $TP --seed $SEED --disable-bias-linear --no-rope-fusion --lr=2e-4 && "
      "echo --done\n",
      "t.sh");
  EXPECT_EQ(text(s.options, "bf16"), "true");
  EXPECT_EQ(std::ranges::count(s.options, "fp16", &Entry::path), 0);
  EXPECT_EQ(at(s.options, "num_layers").place, "t.sh:5");
  EXPECT_EQ(text(s.options, "split"), "9, 1");
  EXPECT_EQ(text(s.options, "data_path"), "1 a 2 b");
  EXPECT_EQ(at(s.options, "data_path").place, "t.sh:8");
  EXPECT_EQ(text(s.options, "nproc_per_node"), "8");
  EXPECT_EQ(text(s.options, "tensor_model_parallel_size"), "4");
  EXPECT_EQ(at(s.options, "seed").value.kind, Value::Kind::open);
  EXPECT_EQ(text(s.options, "add_bias_linear"), "false");
  EXPECT_EQ(text(s.options, "apply_rope_fusion"), "false");
  EXPECT_EQ(at(s.options, "lr").value.number, 2e-4);  // the later one
  EXPECT_EQ(text(s.environment, "NCCL_ALGO"), "Ring");
  EXPECT_EQ(text(s.environment, "X"), "1");
  EXPECT_EQ(text(s.environment, "CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  EXPECT_EQ(std::ranges::count(s.environment, "TP", &Entry::path), 0);
}

TEST(Script, VariablesDoNotGrowForever) {
  std::string script = "A=aa\n";
  for (int k = 0; k < 60; ++k) script += "A=$A$A\n";
  const Script s = read_script(script + "--seed $A\n", "t.sh");
  EXPECT_LT(text(s.options, "seed").size(), 1U << 18);
}

TEST(Script, NothingIsRun) {
  const Script s = read_script("--seed $(touch /tmp/never) --lr `date`\n--data-path \"$(", "t.sh");
  EXPECT_EQ(at(s.options, "seed").value.kind, Value::Kind::open);
}

TEST(Printed, ArgumentsOfALogAreRead) {
  const std::string log =
      "0: ------- arguments -------\n0:   lr ....................... 0.0001\n0:   bf16 ..................... "
      "True\n"
      "0:   fp8 ...................... None\n  moe_router_load_balancing_type ... none\n  data_path ... "
      "['a', 'b']\nloss ...\n";
  EXPECT_TRUE(has_printed(log));
  const auto all = read_printed(log, "l");
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(at(all, "lr").value.number, 1e-4);
  EXPECT_TRUE(at(all, "fp8").value.is_null());
  EXPECT_EQ(text(all, "moe_router_load_balancing_type"), "none");
  EXPECT_EQ(text(all, "data_path"), "['a', 'b']");
}

TEST(Values, NumbersAreComparedAsNumbersAndNanWithNothing) {
  EXPECT_TRUE(same(parse_value("1.e-5"), parse_value("0.00001")));
  EXPECT_TRUE(same(parse_value("2"), parse_value("2.0")));
  EXPECT_FALSE(same(parse_value("nan"), parse_value("nan")));
  EXPECT_FALSE(same(parse_value("9007199254740993"), parse_value("9007199254740992")));
  EXPECT_TRUE(parse_value("None").is_null());
  EXPECT_EQ(parse_value("none").text, "none");
  EXPECT_EQ(as_dtype(parse_value("torch.bfloat16")).text, "bfloat16");
  EXPECT_EQ(as_flag(parse_value("ON")).text, "true");
}

}  // namespace
}  // namespace assay::config::readers_test
