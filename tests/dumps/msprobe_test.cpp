#include <cmath>
#include <limits>

#include "assay/dumps/msprobe/names.h"
#include "msprobe_tree.h"

namespace assay::msprobe_test {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

TEST(MsprobeNames, AreTakenApart) {
  using Kind = MsprobeName::Kind;
  struct Case {
    std::string_view text;
    Kind kind;
    std::string_view module;
    std::int64_t call;
    std::string_view op;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"Functional.linear.3.forward", Kind::forward, "Functional.linear", 3,
            "torch.nn.functional.linear"},
           {"Tensor.__mul__.0.backward", Kind::backward, "Tensor.__mul__", 0, "torch.Tensor.__mul__"},
           {"Mint.matmul.1.forward", Kind::forward, "Mint.matmul", 1, "torch.matmul"},
           {"NPU.npu_rms_norm.0.forward", Kind::forward, "NPU.npu_rms_norm", 0, "npu_rms_norm"},
           {"MindSpeed.f.0.forward", Kind::forward, "MindSpeed.f", 0, ""},
           {"Module.layers.0.mlp.MLP.backward.2", Kind::backward, "layers.0.mlp", 2, "MLP"},
           {"Module.0.module.fc.Linear.forward.1", Kind::forward, "0.module.fc", 1, "Linear"},
           {"Module.fc.Linear.4.forward", Kind::forward, "fc", 4, "Linear"},
           {"Cell.fc.Dense.parameters_grad.1", Kind::grad, "fc", 1, "Dense"},
           {"Module.fc.Linear.parameters_grad", Kind::grad, "fc", 0, "Linear"},
           {"Module.Net.forward.0", Kind::forward, "Module.Net", 0, "Net"},
           {"x.y_grad.7.debug", Kind::debug, "x.y_grad", 7, ""},
           {"forward", Kind::other, "forward", 0, ""},
           {"Module", Kind::other, "Module", 0, ""},
           {"", Kind::other, "", 0, ""},
           {"...", Kind::other, "...", 0, ""}}) {
    const MsprobeName name = parse_msprobe_name(c.text);
    EXPECT_EQ(name.kind, c.kind) << c.text;
    EXPECT_EQ(name.module, c.module) << c.text;
    EXPECT_EQ(name.call, c.call) << c.text;
    EXPECT_EQ(name.op, c.op) << c.text;
  }
  EXPECT_EQ(msprobe_step("step12"), 12);
  EXPECT_EQ(msprobe_rank("rank"), 0);
  for (const char* text : {"step", "step01", "stepx", "step-1", "step99999999999", "astep1"})
    EXPECT_EQ(msprobe_step(text), std::nullopt) << text;
}

TEST(Msprobe, BackwardCallsCountInOrderOfAppearance) {
  const Tree tree;
  const auto backward = [](int call) {
    return fmt::format(R"("Module.m.M.backward.{}":{{"input":[{}],"output":[]}})", call, leaf("[]"));
  };
  tree.rank("step0/rank0", backward(1) + "," + backward(3));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(2));
  EXPECT_EQ(dump->records[0].id.call, 0);
  EXPECT_EQ(dump->records[1].id.call, 1);
}

TEST(Msprobe, BackwardCallsOfAModuleAreThoseOfItsForwardPass) {
  const Tree tree;
  const auto backward = [](std::string_view name) {
    return fmt::format(R"("{}":{{"input":[{}],"output":[]}})", name, leaf("[]"));
  };
  const std::string out = leaf("[]");
  tree.rank("step0/rank0",
            forward("Module.m.M.forward.0", out) + "," + forward("Module.m.M.forward.1", out) + "," +
                backward("Module.m.M.backward.1") + "," + backward("Module.m.M.backward.0") + "," +
                backward("Functional.silu.1.backward") + "," + backward("Functional.silu.0.backward"));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(6));
  EXPECT_EQ(dump->records[2].id.call, 1) << "which backward comes to first";
  EXPECT_EQ(dump->records[3].id.call, 0);
  EXPECT_EQ(dump->records[4].id.call, 0) << "an API's, of any module, in order of appearance";
}

TEST(Msprobe, WhatShowsHowModulesMakeTheirResults) {
  const Tree tree;
  const std::string out = leaf("[]"), api = forward("Functional.linear.0.forward", out);
  tree.rank("step0/rank0", api + "," + forward("Module.mlp.up.Linear.forward.0", out) + "," +
                               forward("Module.mlp.Mlp.forward.0", out));
  const auto mixed = tree.open();
  ASSERT_THAT(mixed->records, SizeIs(3));
  EXPECT_TRUE(mixed->records[0].within) << "an API beside modules";
  EXPECT_FALSE(mixed->records[1].within);
  EXPECT_TRUE(mixed->records[2].within) << "a container";
  const Tree alone;
  alone.rank("step0/rank0", api);
  EXPECT_FALSE(alone.open()->records[0].within) << "nothing else says what the step computes";
}

// A scalar's norm is recorded as its value; MindSpore casts what is no narrow float to float32 before.
TEST(Msprobe, StatisticsThatAreNotWhatTheySay) {
  const auto mindspore = [](std::string_view dtype) {
    return fmt::format(R"({{"type":"mindspore.Tensor","dtype":"{}","shape":[2],"Max":16777217,"Min":0}})",
                       dtype);
  };
  const Tree tree;
  tree.rank("step0/rank0",
            forward("A.a.0.forward", leaf("[]", R"(,"Max":-2,"Min":-2,"Mean":-2,"Norm":-2)") + "," +
                                         mindspore("Int64") + "," + mindspore("Float64") + "," +
                                         mindspore("BFloat16") + "," + mindspore("Bool")));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(5));
  EXPECT_EQ(dump->records[0].statistics->l2, 2);
  EXPECT_EQ(dump->records[0].statistics->mean, -2);
  EXPECT_EQ(dump->records[1].statistics->rounding, 0x1p-24);
  EXPECT_EQ(dump->records[2].statistics->rounding, 0x1p-24);
  EXPECT_EQ(dump->records[3].statistics->rounding, 0);
  EXPECT_EQ(dump->records[4].statistics->rounding, 0);
}

TEST(Msprobe, StatisticsAreTakenWhateverTheyAre) {
  const Tree tree;
  tree.rank("step0/rank0",
            forward("A.a.0.forward", leaf("[2]", R"(,"Max":NaN,"Min":-Infinity,"Mean":null,"Norm":true)")) +
                "," + forward("A.b.0.forward", leaf("[2]", R"(,"Max":"1","Min":[1],"Mean":{},"md5":NaN)")) +
                "," + forward("A.c.0.forward", leaf("[2]", R"(,"md5":"0x00ff")")));
  const auto dump = tree.open();
  ASSERT_THAT(dump->records, SizeIs(3));
  EXPECT_TRUE(std::isnan(dump->records[0].statistics->max.value()));
  EXPECT_EQ(dump->records[0].statistics->min, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(dump->records[0].statistics->mean, std::nullopt);
  EXPECT_EQ(dump->records[0].statistics->l2, 1);
  EXPECT_FALSE(dump->records[1].statistics);
  EXPECT_EQ(dump->records[1].checksum, "");
  EXPECT_EQ(dump->records[2].checksum, "xor:0x00ff");
  EXPECT_FALSE(dump->records[2].has_bits);
  expect_unreadable(*dump, 2, "no values");
}

TEST(Msprobe, GroupsAreCollectedOnce) {
  const Tree tree;
  const std::string group = R"({"type":"torch.ProcessGroup","group_ranks":[0,2],"group_id":"ab"})";
  tree.rank("step0/rank0", forward("Distributed.a.0.forward", group + "," + group));
  const auto dump = tree.open();
  EXPECT_THAT(dump->groups, ElementsAre(RankGroup{"ab", {0, 2}}));
}

}  // namespace
}  // namespace assay::msprobe_test
