// The check of a strategy before anything runs: tensors are typed along every axis.
#include "assay/align/step/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assay/align/placement/shape_machine.h"
#include "assay/align/step/training_step.h"
#include "assay/golden/error.h"

namespace assay::align::plan_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
using Kind = Movement::Kind;

Plan plan_of(const std::string& parallel, const char* model = "latent") {
  const Model m = load_model(std::string(ASSAY_TEST_DATA "/models/") + model + ".toml");
  const Parallel p = parse_parallel(parallel);
  return make_plan(m, {2, 8}, p, Pipeline(p, m, 4), 4);
}

TEST(Plan, SaysOverWhichRanksGradientsAreSummed) {
  const char* const norm = "model.layers.0.input_layernorm.weight";
  const char* const expert = "model.layers.1.mlp.experts.*.up_proj.weight";
  EXPECT_THAT(plan_of("tp=2").at(norm).summed_over, IsEmpty());
  EXPECT_THAT(plan_of("tp=2,sp=1").at(norm).summed_over, ElementsAre(Axis::tp));
  EXPECT_THAT(plan_of("cp=2,dp=2").at(norm).summed_over, ElementsAre(Axis::cp, Axis::dp));
  EXPECT_THAT(plan_of("dp=4,ep=2").at(expert).summed_over, ElementsAre(Axis::edp));
  EXPECT_THAT(plan_of("dp=2,ep=2").at(expert).summed_over, IsEmpty());
  // Each rank has norms of its heads alone.
  EXPECT_THAT(plan_of("tp=2", "grouped").at("model.layers.0.self_attn.q_norm.weight").summed_over,
              ElementsAre(Axis::tp));
}

TEST(Plan, SaysWhichStagesHoldAParameter) {
  const Plan plan = plan_of("pp=4");
  EXPECT_THAT(plan.at("model.embed_tokens.weight").holders, ElementsAre(0, 3));  // for multi-token prediction
  EXPECT_THAT(plan.at("model.layers.1.input_layernorm.weight").holders, ElementsAre(1));
  EXPECT_THAT(plan_of("pp=2,schedule=dualpipe").at("model.layers.1.input_layernorm.weight").holders,
              ElementsAre(0, 1));
}

TEST(Plan, WhatDoesNotFitIsAnErrorThatSaysWhy) {
  const auto plan = [](const char* parallel, const char* model = "latent") {
    return [=] { plan_of(parallel, model); };
  };
  EXPECT_THAT(plan("tp=3"), ThrowsMessage<Error>(HasSubstr("4 attention heads do not divide over tp = 3")));
  EXPECT_THAT(plan("tp=8", "grouped"), ThrowsMessage<Error>(HasSubstr("4 heads of keys")));
  EXPECT_THAT(plan("sp=1"), ThrowsMessage<Error>(HasSubstr("sp needs tp > 1")));
  EXPECT_THAT(plan("cp=3"),
              ThrowsMessage<Error>(HasSubstr("8 tokens of a sequence do not divide over 2 cp")));
  EXPECT_THAT(plan("cp=8,context=ulysses"), ThrowsMessage<Error>(HasSubstr("attention heads")));
  EXPECT_THAT(plan("ep=2"), ThrowsMessage<Error>(HasSubstr("ep 2 times etp 1 does not divide")));
  EXPECT_THAT(plan("dp=3,ep=3"), ThrowsMessage<Error>(HasSubstr("8 experts do not divide over ep = 3")));
  EXPECT_THAT(plan("dp=4,ep=4,dispatch=hierarchical,node=3"),
              ThrowsMessage<Error>(HasSubstr("node = 3 ranks do not divide ep = 4")));
  EXPECT_THAT(plan("dp=2,ep=2,node=2"), ThrowsMessage<Error>(HasSubstr("dispatch=hierarchical")));
  EXPECT_THAT(plan("zero=1"), ThrowsMessage<Error>(HasSubstr("zero needs dp or cp > 1")));
}

TEST(ParseParallel, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT([] { parse_parallel("tpp=2"); },
              ThrowsMessage<Error>(HasSubstr("no key 'tpp'; expected tp, sp")));
  EXPECT_THAT([] { parse_parallel("tp=2,dp=2,tp=4"); }, ThrowsMessage<Error>(HasSubstr("tp is given twice")));
  EXPECT_THAT([] { parse_parallel("tp=4096,dp=4096"); },
              ThrowsMessage<Error>(HasSubstr("more than 4096 ranks")));
  EXPECT_THAT([] { parse_parallel("tp"); }, ThrowsMessage<Error>(HasSubstr("'tp' has no value")));
  EXPECT_THAT([] { parse_parallel("tp=0"); }, ThrowsMessage<Error>(HasSubstr("expected a number from 1")));
  EXPECT_THAT([] { parse_parallel("schedule=gpipe"); },
              ThrowsMessage<Error>(HasSubstr("expected 1f1b, interleaved, zero-bubble, dualpipe")));
}

TEST(ParseParallel, ReadsWhatIsWritten) {
  const char* const text =
      "tp=2,sp=1,dp=4,zero=3,pp=2,vpp=2,schedule=interleaved,stages=1+2+3+4,ep=8,dispatch=allgather";
  EXPECT_EQ(parse_parallel(to_string(parse_parallel(text))), parse_parallel(text));
  EXPECT_EQ(to_string(Parallel()), "");
}

// A strategy as it must not be written.
class Types : public testing::Test {
 protected:
  ShapeMachine on_{Mesh(parse_parallel("tp=2"), 0)};
  const Value x_ = on_.given({4, 8}, {});
  Value columns() {
    return on_.call("up", "linear",
                    {{"x", x_}, {"w", on_.parameter("up", {6, 8}, {{Axis::tp, sharded(0)}})}});
  }
  Value rows() {
    return on_.call("down", "linear",
                    {{"x", columns()}, {"w", on_.parameter("down", {8, 6}, {{Axis::tp, sharded(1)}})}});
  }
};

TEST_F(Types, AreThoseOfTheFormulas) {
  EXPECT_EQ(columns().placement[Axis::tp], sharded(1));
  EXPECT_EQ(rows().placement[Axis::tp], partial);
  EXPECT_EQ(on_.move("down", {Kind::all_reduce, Axis::tp}, rows()).placement, MeshPlacement());
}

TEST_F(Types, ASumThatIsNotReducedIsRefused) {
  EXPECT_THAT(
      [&] {
        on_.call("norm", "rms_norm", {{"x", rows()}, {"weight", on_.parameter("norm", {8})}});
      },
      ThrowsMessage<Error>(HasSubstr("norm: rms_norm takes x, which is partial over tp")));
  EXPECT_THAT(
      [&] {
        on_.call("residual", "add", {{"a", x_}, {"b", rows()}});
      },
      ThrowsMessage<Error>(HasSubstr("partial over tp")));
}

TEST_F(Types, ADimensionThatIsNeededWholeIsRefused) {
  const Value y = columns();
  EXPECT_THAT(
      [&] {
        on_.call("norm", "rms_norm", {{"x", y}, {"weight", on_.parameter("norm", {3})}});
      },
      ThrowsMessage<Error>(HasSubstr("norm: rms_norm takes weight, replicated over tp")));
  EXPECT_THAT(
      [&] {
        on_.call("softmax", "softmax", {{"x", y}});
      },
      ThrowsMessage<Error>(HasSubstr("softmax")));
}

TEST_F(Types, WhatIsReducedTwiceIsRefused) {
  const Value y = on_.move("down", {Kind::all_reduce, Axis::tp}, rows());
  EXPECT_THAT(
      [&] {
        on_.move("down", {Kind::all_reduce, Axis::tp}, y);
      },
      ThrowsMessage<Error>(HasSubstr("the all-reduce over tp takes what is partial; it is given what is "
                                     "replicated")));
}

// The canonical fault: the gradient of what a column parallel matrix takes is not reduced, and meets one that
// is whole.
TEST_F(Types, APartialGradientBesideAWholeOneIsRefused) {
  const Value y = on_.move("down", {Kind::all_reduce, Axis::tp}, rows());
  const Value sum = on_.call("residual", "add", {{"a", x_}, {"b", y}});
  EXPECT_THAT([&] { on_.gradient_placements({sum}); },
              ThrowsMessage<Error>(HasSubstr("gradients of one tensor are added up")));
}

TEST_F(Types, ItsReductionMakesItRight) {
  const Value entered = on_.move("up", {Kind::copy, Axis::tp}, x_);
  const Value up = on_.call("up", "linear",
                            {{"x", entered}, {"w", on_.parameter("up", {6, 8}, {{Axis::tp, sharded(0)}})}});
  const Value down =
      on_.call("down", "linear", {{"x", up}, {"w", on_.parameter("down", {8, 6}, {{Axis::tp, sharded(1)}})}});
  const Value y = on_.move("down", {Kind::all_reduce, Axis::tp}, down);
  const Value sum = on_.call("residual", "add", {{"a", x_}, {"b", y}});
  EXPECT_EQ(on_.gradient_placements({sum}).at(x_.id), MeshPlacement());
}

}  // namespace
}  // namespace assay::align::plan_test
